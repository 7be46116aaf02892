package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// broker is one broker of a route, as the operations use it.
type broker struct {
	name    string
	cluster string
	address string // where to dial
	readers int    // read queues
	writers int    // write queues
}

// routeData is the part of TopicRouteData that the operations need.
type routeData struct {
	QueueDatas []struct {
		BrokerName     string `json:"brokerName"`
		ReadQueueNums  int    `json:"readQueueNums"`
		WriteQueueNums int    `json:"writeQueueNums"`
	} `json:"queueDatas"`
	BrokerDatas []struct {
		Cluster     string            `json:"cluster"`
		BrokerName  string            `json:"brokerName"`
		BrokerAddrs map[string]string `json:"brokerAddrs"`
	} `json:"brokerDatas"`
}

// route asks for the topic's brokers.
func route(opts *options) ([]broker, error) {
	link, err := dial(opts.namesrv, 1)
	if err != nil {
		return nil, err
	}
	defer link.conn.Close()
	if err := link.conn.SetDeadline(time.Now().Add(opts.timeout)); err != nil {
		return nil, err
	}
	fields := appendField(appendField(nil, "topic", opts.topicNames()[0]), "acceptStandardJsonOnly", "true")
	var brokers []broker
	var refused error
	err = link.call(codeRoute, withoutComma(fields), nil, func(f *frame, _, _ time.Time) {
		if f.code != 0 {
			refused = errors.New(f.failure("the route request was"))
			return
		}
		brokers, refused = decodeRoute(f.body)
	})
	if err = errors.Join(err, refused); err != nil {
		return nil, fmt.Errorf("no route from %s: %w", opts.namesrv, err)
	}
	if opts.dialEndpoint {
		for i := range brokers {
			brokers[i].address = opts.endpoint
		}
	}
	return brokers, nil
}

func decodeRoute(text []byte) ([]broker, error) {
	var data routeData
	if err := json.Unmarshal(text, &data); err != nil {
		return nil, err
	}
	var brokers []broker
	for _, queues := range data.QueueDatas {
		for _, found := range data.BrokerDatas {
			if address := found.BrokerAddrs["0"]; found.BrokerName == queues.BrokerName && address != "" {
				brokers = append(brokers, broker{
					name: found.BrokerName, cluster: found.Cluster, address: address,
					readers: queues.ReadQueueNums, writers: queues.WriteQueueNums,
				})
			}
		}
	}
	if len(brokers) == 0 {
		return nil, errors.New("no broker carries the topic")
	}
	return brokers, nil
}
