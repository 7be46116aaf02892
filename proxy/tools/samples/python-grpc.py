# pip install rocketmq-python-client
import os

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

user = Credentials(os.environ.get("ROCKETMQ_ACCESS_KEY", ""), os.environ.get("ROCKETMQ_SECRET_KEY", ""))
endpoint = ClientConfiguration("127.0.0.1:8080", user)
producer = Producer(endpoint, ("demo",), tls_enable=False)
producer.startup()
message = Message()
message.topic = "demo"
message.body = b"hello from Python"
print(producer.send(message))

consumer = SimpleConsumer(endpoint, "demo-python", {"demo": FilterExpression("*")}, await_duration=5, tls_enable=False)
consumer.startup()
while True:
    for message in consumer.receive(16, 30) or ():
        print(message.body)
        consumer.ack(message)
