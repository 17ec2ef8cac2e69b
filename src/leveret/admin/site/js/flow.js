// The columns of a table that say how many messages pass an object.

import { rate } from "./format.js";
import { at } from "./sources.js";

const speed = (row, name) => rate(at(row, `message_stats.${name}_details.rate`) ?? 0);

export const FLOW = [
  {
    title: "In /s",
    sort: "message_stats.publish_details.rate",
    end: true,
    width: "6rem",
    phone: true,
    cell: (row) => speed(row, "publish"),
  },
  {
    title: "Out /s",
    sort: "message_stats.deliver_get_details.rate",
    end: true,
    width: "6rem",
    phone: true,
    cell: (row) => speed(row, "deliver_get"),
  },
  {
    title: "Ack /s",
    sort: "message_stats.ack_details.rate",
    end: true,
    width: "6rem",
    cell: (row) => speed(row, "ack"),
  },
];
