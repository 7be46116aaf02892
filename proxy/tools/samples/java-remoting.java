// org.apache.rocketmq:rocketmq-client:5.4.0
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("demo-java");
        consumer.setNamesrvAddr("127.0.0.1:8080");
        consumer.subscribe("demo", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> System.out.println(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("demo-producer");
        producer.setNamesrvAddr("127.0.0.1:8080");
        producer.start();
        System.out.println(producer.send(new Message("demo", "hello from Java".getBytes())));
    }
}
