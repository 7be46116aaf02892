# pip install rocketmq-client-python; it also needs the C++ client, librocketmq
import os
import time

from rocketmq.client import ConsumeStatus, Message, Producer, PushConsumer


def take(message):
    print(message.body)
    return ConsumeStatus.CONSUME_SUCCESS


consumer = PushConsumer("demo-python-remoting")
consumer.set_name_server_address("127.0.0.1:8080")
if user := os.environ.get("ROCKETMQ_ACCESS_KEY"):
    consumer.set_session_credentials(user, os.environ["ROCKETMQ_SECRET_KEY"], "")
consumer.subscribe("demo", take)
consumer.start()

producer = Producer("demo-producer")
producer.set_name_server_address("127.0.0.1:8080")
if user:
    producer.set_session_credentials(user, os.environ["ROCKETMQ_SECRET_KEY"], "")
producer.start()
message = Message("demo")
message.set_body("hello from Python")
print(producer.send_sync(message).msg_id)
time.sleep(60)
