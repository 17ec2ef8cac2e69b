// Leads connections to the standard port to the broker under test: NODE_OPTIONS="--require THIS", BROKER_5672=PORT.
const net = require('node:net');

const { connect } = net;
const target = { host: '127.0.0.1', port: Number(process.env.BROKER_5672) };

net.connect = (to, ...rest) => connect(Number(to.port) === 5672 ? { ...to, ...target } : to, ...rest);
