package main

import (
	"context"
	"errors"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var ok = &v2.Status{Code: v2.Code_OK}

// strictService keeps messages in memory and serves only clients that have told their settings.
type strictService struct {
	v2.UnimplementedMessagingServiceServer
	mutex   sync.Mutex
	settled map[string]bool
	stored  []*v2.Message
	acked   map[string]int
}

func (s *strictService) known(ctx context.Context) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if id := header(ctx, "x-mq-client-id"); !s.settled[id] {
		return status.Errorf(codes.FailedPrecondition, "no settings of client %q", id)
	}
	return nil
}

func header(ctx context.Context, name string) string {
	if found := metadata.ValueFromIncomingContext(ctx, name); len(found) == 1 {
		return found[0]
	}
	return ""
}

func (s *strictService) QueryRoute(ctx context.Context, _ *v2.QueryRouteRequest) (*v2.QueryRouteResponse, error) {
	if header(ctx, "x-mq-language") != "GO" || header(ctx, "x-mq-protocol") != "v2" || header(ctx, "x-mq-request-id") == "" {
		return nil, status.Error(codes.InvalidArgument, "metadata is missing")
	}
	return &v2.QueryRouteResponse{Status: ok}, nil
}

func (s *strictService) Telemetry(stream grpc.BidiStreamingServer[v2.TelemetryCommand, v2.TelemetryCommand]) error {
	for {
		command, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mutex.Lock()
		s.settled[header(stream.Context(), "x-mq-client-id")] = true
		s.mutex.Unlock()
		if err := stream.Send(&v2.TelemetryCommand{Status: ok, Command: command.GetCommand()}); err != nil {
			return err
		}
	}
}

func (s *strictService) Heartbeat(ctx context.Context, _ *v2.HeartbeatRequest) (*v2.HeartbeatResponse, error) {
	return &v2.HeartbeatResponse{Status: ok}, s.known(ctx)
}

func (s *strictService) QueryAssignment(ctx context.Context, r *v2.QueryAssignmentRequest) (*v2.QueryAssignmentResponse, error) {
	queue := &v2.MessageQueue{Topic: r.GetTopic(), Id: -1}
	return &v2.QueryAssignmentResponse{Status: ok, Assignments: []*v2.Assignment{{MessageQueue: queue}}}, s.known(ctx)
}

func (s *strictService) SendMessage(ctx context.Context, r *v2.SendMessageRequest) (*v2.SendMessageResponse, error) {
	if err := s.known(ctx); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.stored = append(s.stored, r.GetMessages()...)
	return &v2.SendMessageResponse{Status: ok, Entries: []*v2.SendResultEntry{{Status: ok}}}, nil
}

func (s *strictService) ReceiveMessage(r *v2.ReceiveMessageRequest, stream grpc.ServerStreamingServer[v2.ReceiveMessageResponse]) error {
	if err := s.known(stream.Context()); err != nil {
		return err
	}
	s.mutex.Lock()
	count := min(len(s.stored), int(r.GetBatchSize()))
	batch := s.stored[:count]
	s.stored = s.stored[count:]
	s.mutex.Unlock()
	found := ok
	if count == 0 {
		time.Sleep(time.Millisecond)
		found = &v2.Status{Code: v2.Code_MESSAGE_NOT_FOUND}
	}
	err := stream.Send(&v2.ReceiveMessageResponse{Content: &v2.ReceiveMessageResponse_Status{Status: found}})
	for _, message := range batch {
		content := &v2.ReceiveMessageResponse_Message{Message: message}
		err = errors.Join(err, stream.Send(&v2.ReceiveMessageResponse{Content: content}))
	}
	return err
}

func (s *strictService) AckMessage(ctx context.Context, r *v2.AckMessageRequest) (*v2.AckMessageResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(r.GetEntries()) != 1 {
		return nil, status.Error(codes.InvalidArgument, "push consumers acknowledge one by one")
	}
	s.acked[r.GetEntries()[0].GetMessageId()]++
	return &v2.AckMessageResponse{Status: ok, Entries: []*v2.AckMessageResultEntry{{Status: ok}}}, nil
}

// serving starts a server; its address is the result.
func serving(t *testing.T, register func(*grpc.Server), options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func load(t *testing.T, words ...string) *report {
	t.Helper()
	opts, err := parse(words)
	if err != nil {
		t.Fatal(err)
	}
	rep := &report{}
	if err := operations[opts.operation](opts, rep); err != nil {
		t.Fatal(err)
	}
	if rep.Errors > 0 {
		t.Fatalf("%d errors, the first: %s", rep.Errors, rep.FirstError)
	}
	return rep
}

func TestMessagesAreSentReceivedAndAcknowledgedOnce(t *testing.T) {
	service := &strictService{settled: map[string]bool{}, acked: map[string]int{}}
	address := serving(t, func(s *grpc.Server) { v2.RegisterMessagingServiceServer(s, service) })

	if rep := load(t, "grpc-send-async", "--endpoint", address, "--messages", "500"); rep.AllMessages != 500 {
		t.Errorf("%d sends", rep.AllMessages)
	}
	rep := load(t, "grpc-receive-ack", "--endpoint", address, "--messages", "500")
	if rep.AllMessages != 500 || rep.Counts["received"] != 500 || len(service.acked) != 500 {
		t.Errorf("%d messages, counts %v, %d ids", rep.AllMessages, rep.Counts, len(service.acked))
	}
	rep = load(t, "grpc-mixed", "--endpoint", address, "--messages", "300")
	if rep.AllMessages != 300 || rep.Latency.Count != 600 || len(service.acked) != 800 {
		t.Errorf("%d messages, %d latencies, %d ids", rep.AllMessages, rep.Latency.Count, len(service.acked))
	}
}

func TestPacedSendsCountFromTheirTimesOfArrival(t *testing.T) {
	service := &slowService{strictService: strictService{settled: map[string]bool{}, acked: map[string]int{}}}
	address := serving(t, func(s *grpc.Server) { v2.RegisterMessagingServiceServer(s, service) })

	// Forty arrivals within 40 ms at a server that takes 10 ms for each: the last waits for the others.
	rep := load(t, "grpc-send-async", "--endpoint", address, "--connections", "1", "--window", "1", "--rate", "1000", "--messages", "40")
	if rep.AllMessages != 40 || rep.Latency.Max < 300 {
		t.Errorf("%d messages, latencies %+v", rep.AllMessages, rep.Latency)
	}
}

// slowService takes its time for a send.
type slowService struct{ strictService }

func (s *slowService) SendMessage(ctx context.Context, r *v2.SendMessageRequest) (*v2.SendMessageResponse, error) {
	time.Sleep(10 * time.Millisecond)
	return s.strictService.SendMessage(ctx, r)
}

func TestARefusedClientIsAnError(t *testing.T) {
	address := serving(t, func(s *grpc.Server) {
		v2.RegisterMessagingServiceServer(s, &v2.UnimplementedMessagingServiceServer{})
	})
	opts, err := parse([]string{"grpc-send-sync", "--endpoint", address, "--messages", "1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := grpcSend(opts, &report{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}

func TestTheEchoComesBack(t *testing.T) {
	address := serving(t, registerEcho, grpc.ForceServerCodecV2(rawCodec{}))

	if rep := load(t, "echo", "--endpoint", address, "--messages", "500"); rep.AllMessages != 500 {
		t.Errorf("%d echoes", rep.AllMessages)
	}
	if rep := load(t, "echo-stream", "--endpoint", address, "--messages", "1000"); rep.AllMessages != 1000 {
		t.Errorf("%d messages", rep.AllMessages)
	}
	if rep := load(t, "echo-idle", "--endpoint", address, "--connections", "3", "--seconds", "0.01"); rep.AllMessages != 3 {
		t.Errorf("%d connections", rep.AllMessages)
	}
}

func TestIdentifiersHaveTheFormOfTheOfficialClients(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if id := requestID(); !uuid.MatchString(id) {
		t.Errorf("request id %s", id)
	}
	made := newSource(&options{topic: "t"})
	id := made.id(time.Now(), 1)
	if !regexp.MustCompile(`^01[0-9A-F]{32}$`).MatchString(id) {
		t.Errorf("message id %s", id)
	}
	if !made.made(id) || newSource(&options{topic: "t"}).made(id) || id == made.id(time.Now(), 2) {
		t.Error("message ids do not tell sources and messages apart")
	}
}
