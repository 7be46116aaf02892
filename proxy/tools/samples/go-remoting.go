// go get github.com/apache/rocketmq-client-go/v2
package main

import (
	"context"
	"fmt"
	"os"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	// Without these variables the client does not sign its requests.
	user := primitive.Credentials{AccessKey: os.Getenv("ROCKETMQ_ACCESS_KEY"), SecretKey: os.Getenv("ROCKETMQ_SECRET_KEY")}
	endpoint := primitive.NewPassthroughResolver([]string{"127.0.0.1:8080"})
	// A new group otherwise starts at the end, which may be behind the message that is sent below.
	c, _ := rocketmq.NewPushConsumer(consumer.WithNsResolver(endpoint), consumer.WithGroupName("demo-go"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithCredentials(user))
	_ = c.Subscribe("demo", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				fmt.Println(string(message.Body))
			}
			return consumer.ConsumeSuccess, nil
		})
	if err := c.Start(); err != nil {
		panic(err)
	}
	p, _ := rocketmq.NewProducer(producer.WithNsResolver(endpoint), producer.WithGroupName("demo-producer"),
		producer.WithCredentials(user))
	if err := p.Start(); err != nil {
		panic(err)
	}
	fmt.Println(p.SendSync(context.Background(), primitive.NewMessage("demo", []byte("hello from Go"))))
	select {}
}
