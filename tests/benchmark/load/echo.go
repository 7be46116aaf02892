package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	echoUnary  = "/benchmark.Echo/Unary"
	echoMany   = "/benchmark.Echo/Stream"
	echoHold   = "/benchmark.Echo/Hold"
	streamSize = 100 // messages that answer a call of Stream
)

// rawCodec leaves messages as the bytes that they are: the echo is about the transport.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }

// echoServe is the bare server in grpc-go, with its default options.
func echoServe(opts *options, _ *report) error {
	listener, err := net.Listen("tcp", opts.endpoint)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}))
	registerEcho(server)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	return server.Serve(listener)
}

func registerEcho(server *grpc.Server) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "benchmark.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: answerUnary}},
		Streams: []grpc.StreamDesc{
			{StreamName: "Stream", Handler: answerStream, ServerStreams: true},
			{StreamName: "Hold", Handler: answerHold, ServerStreams: true, ClientStreams: true},
		},
	}, nil)
}

func answerUnary(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var message []byte
	err := decode(&message)
	return &message, err
}

func answerStream(_ any, stream grpc.ServerStream) error {
	var message []byte
	err := stream.RecvMsg(&message)
	for i := 0; i < streamSize && err == nil; i++ {
		err = stream.SendMsg(&message)
	}
	return err
}

func answerHold(_ any, stream grpc.ServerStream) error {
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

func dialEcho(opts *options) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+opts.endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.WaitForReady(true)))
}

// echo makes unary calls.
func echo(opts *options, rep *report) error {
	return echoLoad(opts, rep, 1, func(ctx context.Context, conn *grpc.ClientConn, body []byte) error {
		var answer []byte
		if err := conn.Invoke(ctx, echoUnary, &body, &answer); err != nil {
			return err
		}
		return same(body, answer)
	})
}

// echoStream makes calls that a stream of messages answers. These are what counts; latency is that
// of the whole call.
func echoStream(opts *options, rep *report) error {
	desc := &grpc.StreamDesc{ServerStreams: true}
	return echoLoad(opts, rep, streamSize, func(ctx context.Context, conn *grpc.ClientConn, body []byte) error {
		stream, err := conn.NewStream(ctx, desc, echoMany)
		if err != nil {
			return err
		}
		if err := errors.Join(stream.SendMsg(&body), stream.CloseSend()); err != nil {
			return err
		}
		for count := 0; ; count++ {
			var answer []byte
			err := stream.RecvMsg(&answer)
			switch {
			case errors.Is(err, io.EOF) && count == streamSize:
				return nil
			case errors.Is(err, io.EOF):
				return fmt.Errorf("a stream of %d messages", count)
			case err != nil:
				return err
			}
			if err := same(body, answer); err != nil {
				return err
			}
		}
	})
}

func same(sent, came []byte) error {
	if !bytes.Equal(sent, came) {
		return errors.New("the echo differs")
	}
	return nil
}

// echoLoad repeats a call with window of them in flight on each connection.
func echoLoad(opts *options, rep *report, counts int, call func(context.Context, *grpc.ClientConn, []byte) error) error {
	r := newRun(opts, rep)
	defer r.close()
	body := text(opts.size)
	var workers []func(*recorder) error
	for range opts.connections {
		conn, err := dialEcho(opts)
		if err != nil {
			return err
		}
		r.closers = append(r.closers, conn)
		for range opts.window {
			workers = append(workers, func(rec *recorder) error {
				for r.take(counts) {
					sent := time.Now()
					if err := call(context.Background(), conn, body); err != nil {
						r.fail(err.Error())
						continue
					}
					rec.done(sent, time.Now(), counts)
				}
				return nil
			})
		}
	}
	r.workAll(workers)
	return nil
}

// echoIdle opens connections with one stream each, on which one message went to and fro, and keeps
// them for the time.
func echoIdle(opts *options, rep *report) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	body := text(opts.size)
	begun := time.Now()
	for range opts.connections {
		conn, err := dialEcho(opts)
		if err != nil {
			return err
		}
		defer conn.Close()
		stream, err := conn.NewStream(ctx, desc, echoHold)
		if err != nil {
			return err
		}
		late := time.AfterFunc(opts.timeout, cancel)
		if err := stream.SendMsg(&body); err != nil {
			return err
		}
		var answer []byte
		if err := errors.Join(stream.RecvMsg(&answer), same(body, answer)); err != nil {
			return err
		}
		late.Stop()
		rep.AllMessages++
	}
	rep.count("connect_ms", int(time.Since(begun).Milliseconds()))
	time.Sleep(opts.duration)
	return nil
}
