// go get github.com/apache/rocketmq-clients/golang/v5
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func main() {
	rmq.EnableSsl = false
	config := &rmq.Config{Endpoint: "127.0.0.1:8080", ConsumerGroup: "demo-go-grpc",
		Credentials: &credentials.SessionCredentials{
			AccessKey: os.Getenv("ROCKETMQ_ACCESS_KEY"), AccessSecret: os.Getenv("ROCKETMQ_SECRET_KEY")}}
	p, _ := rmq.NewProducer(config, rmq.WithTopics("demo"))
	if err := p.Start(); err != nil {
		panic(err)
	}
	receipts, err := p.Send(context.Background(), &rmq.Message{Topic: "demo", Body: []byte("hello from Go")})
	if err != nil {
		panic(err)
	}
	fmt.Println("sent", receipts[0].MessageID)
	c, _ := rmq.NewSimpleConsumer(config, rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{"demo": rmq.SUB_ALL}))
	if err := c.Start(); err != nil {
		panic(err)
	}
	for {
		messages, _ := c.Receive(context.Background(), 16, 30*time.Second)
		for _, message := range messages {
			fmt.Println(string(message.GetBody()))
			_ = c.Ack(context.Background(), message)
		}
	}
}
