'use strict';
// Calls `xds:///svc` for ever and prints one line of JSON per call: {"method", "reply", "error"}.
// The control plane and the node's metadata come from GRPC_XDS_BOOTSTRAP_CONFIG, as for any gRPC program.
// Usage: node client.js TARGET METHOD...   Each METHOD is called in turn, as /echo.Echo/METHOD with raw bytes.

const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const PAUSE_MS = 50;
const DEADLINE_MS = 2000;

const [target, ...methods] = process.argv.slice(2);
const client = new grpc.Client(target, grpc.credentials.createInsecure());
const bytes = (value) => value;

function call(method) {
  const options = { deadline: Date.now() + DEADLINE_MS };
  return new Promise((resolve) => {
    client.makeUnaryRequest(`/echo.Echo/${method}`, bytes, bytes, Buffer.from('hello'), options, (error, reply) => {
      resolve({ method, reply: error ? null : reply.toString(), error: error ? error.message : null });
    });
  });
}

async function main() {
  for (let turn = 0; ; turn += 1) {
    const outcome = await call(methods[turn % methods.length]);
    process.stdout.write(`${JSON.stringify(outcome)}\n`);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

main();
