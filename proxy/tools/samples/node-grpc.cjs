// npm install rocketmq-client-nodejs
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const { ROCKETMQ_ACCESS_KEY: accessKey, ROCKETMQ_SECRET_KEY: accessSecret } = process.env;
const endpoint = {
  endpoints: '127.0.0.1:8080', namespace: '', sslEnabled: false,
  ...(accessKey && { sessionCredentials: { accessKey, accessSecret } }),
};

async function main() {
  const producer = new Producer({ ...endpoint, topic: 'demo' });
  await producer.startup();
  console.log(await producer.send({ topic: 'demo', body: Buffer.from('hello from Node') }));
  const consumer = new SimpleConsumer({
    ...endpoint, consumerGroup: 'demo-node', subscriptions: new Map([['demo', '*']]),
    awaitDuration: 5000,
  });
  await consumer.startup();
  for (;;) {
    for (const message of await consumer.receive(16, 30000)) {
      console.log(message.body.toString());
      await consumer.ack(message);
    }
  }
}

main();
