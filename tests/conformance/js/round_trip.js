// What an ordinary Node program does with a broker, by amqplib. Argument: the AMQP URL.
// Prints one line of JSON with what it saw; exits with 1 and the reason when anything is wrong.
'use strict';

const assert = require('node:assert/strict');
const amqp = require('amqplib');

const DEADLINE_MS = 20000;

// Resolves with the first `count` messages of a queue.
function collect(channel, queue, count, options) {
  return new Promise((resolve, reject) => {
    const seen = [];
    channel.consume(queue, (message) => {
      if (message === null) return reject(new Error(`${queue} was cancelled`));
      seen.push(message);
      if (!options || !options.noAck) channel.ack(message);
      if (seen.length === count) resolve(seen);
    }, options).catch(reject);
  });
}

// Topic exchange, confirms, acknowledgement.
async function publishAndConsume(connection, name) {
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange(name, 'topic', { autoDelete: true });
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await channel.bindQueue(queue, name, 'item.*');
  for (let number = 0; number < 100; number++) {
    channel.publish(name, `item.${number}`, Buffer.from(String(number)), {
      persistent: true, messageId: `m-${number}`, headers: { number, nested: { list: [1, 'two', true] } },
    });
  }
  await channel.waitForConfirms();
  await channel.prefetch(10);
  const seen = await collect(channel, queue, 100);
  seen.forEach((message, number) => {
    assert.equal(message.content.toString(), String(number));
    assert.equal(message.fields.routingKey, `item.${number}`);
    assert.equal(message.properties.messageId, `m-${number}`);
    assert.deepEqual(message.properties.headers, { number, nested: { list: [1, 'two', true] } });
  });
  await channel.close();
  return seen.length;
}

// A request and its answer over direct reply-to.
async function call(connection, name) {
  const server = await connection.createChannel();
  await server.assertQueue(name, { autoDelete: true });
  await server.consume(name, (request) => {
    server.sendToQueue(request.properties.replyTo, Buffer.from(request.content.toString().toUpperCase()),
      { correlationId: request.properties.correlationId });
  }, { noAck: true });
  const client = await connection.createChannel();
  const answers = collect(client, 'amq.rabbitmq.reply-to', 3, { noAck: true });
  for (const word of ['one', 'two', 'three']) {
    client.sendToQueue(name, Buffer.from(word), { replyTo: 'amq.rabbitmq.reply-to', correlationId: word });
  }
  const seen = (await answers).map((each) => [each.properties.correlationId, each.content.toString()]);
  await client.close();
  await server.close();
  return seen;
}

// An unroutable mandatory message comes back.
async function unroutable(connection) {
  const channel = await connection.createConfirmChannel();
  const back = new Promise((resolve) => channel.once('return', resolve));
  channel.publish('', 'nobody-has-this-queue', Buffer.from('back'), { mandatory: true });
  const message = await back;
  await channel.waitForConfirms();
  await channel.close();
  return [message.fields.replyCode, message.fields.replyText, message.content.toString()];
}

// A mistake closes the channel with code and text; the connection goes on.
async function mistake(connection, name) {
  const channel = await connection.createChannel();
  const told = new Promise((resolve) => channel.once('error', resolve));
  await channel.checkQueue(name).catch(() => undefined);
  return (await told).code;
}

async function main(url) {
  const name = `node-${process.pid}-${Date.now()}`;
  const connection = await amqp.connect(url, { timeout: DEADLINE_MS });
  const result = {
    delivered: await publishAndConsume(connection, `${name}-x`),
    answers: await call(connection, `${name}-rpc`),
    returned: await unroutable(connection),
    mistake: await mistake(connection, `${name}-missing`),
  };
  await connection.close();
  return result;
}

const alarm = setTimeout(() => { console.error('no result in time'); process.exit(1); }, DEADLINE_MS);
main(process.argv[2]).then(
  (result) => { clearTimeout(alarm); console.log(JSON.stringify(result)); },
  (error) => { console.error(error); process.exit(1); },
);
