'use strict';
// Opens calls on one channel as it is told, and prints what comes of them.
// Usage: node streams.js ADDRESS WINDOW   WINDOW is that of streams, in bytes; 0: what gRPC likes best.
// Orders and events are those of ../go/streams/main.go.

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');

const [address, window] = process.argv.slice(2);
const options = {
  'grpc.max_receive_message_length': -1,
  'grpc.max_send_message_length': -1,
  'grpc.initial_reconnect_backoff_ms': 200, // by default, the waits between two tries grow to two minutes
  'grpc.max_reconnect_backoff_ms': 200,
};
if (Number(window)) {
  options['grpc-node.flow_control_window'] = Number(window);
}
const client = new grpc.Client(address, grpc.credentials.createInsecure(), options);
const calls = new Map();
const bytes = (value) => value;

function report(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function read(number) {
  calls.get(number).on('data', (body) => report({ call: number, message: body.toString('base64') }));
}

function open(asked) {
  const metadata = new grpc.Metadata({ waitForReady: true });
  const limit = asked.deadline ? { deadline: Date.now() + asked.deadline * 1000 } : {};
  const call = client.makeBidiStreamRequest(asked.method, bytes, bytes, metadata, limit);
  call.on('error', () => {}); // 'status' says it too
  call.on('status', ({ code, details }) => report({ call: asked.call, status: code, details }));
  calls.set(asked.call, call);
  if (!asked.held) {
    read(asked.call);
  }
}

const does = {
  open,
  send: ({ call, body }) => calls.get(call).write(Buffer.from(body, 'base64')),
  read: ({ call }) => read(call),
  finish: ({ call }) => calls.get(call).end(),
  cancel: ({ call }) => calls.get(call).cancel(),
};

const orders = readline.createInterface({ input: process.stdin });
orders.on('line', (line) => {
  const order = JSON.parse(line);
  does[order.do](order);
});
orders.on('close', () => process.exit(0)); // the test is over
