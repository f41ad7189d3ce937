package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// grpcHealthChecking is a gRPC health service that turns unhealthy after a
// time, or when asked over HTTP.
func grpcHealthChecking(args []string) int {
	h := &healthServer{started: time.Now()}
	var port, httpPort int
	var cert, key string
	flags("grpc-health-checking", args, func(f *pflag.FlagSet) {
		f.IntVar(&port, "port", 5000, "gRPC port number")
		f.IntVar(&httpPort, "http-port", 8080, "port number for /make-serving and /make-not-serving")
		f.IntVar(&h.unhealthyAfter, "delay-unhealthy-sec", -1, "seconds until the answer is NOT_SERVING, negative for never")
		f.StringVar(&h.service, "service", "", "service name to answer for")
		f.StringVar(&cert, "tls-cert-file", "", "certificate of the gRPC server")
		f.StringVar(&key, "tls-private-key-file", "", "private key matching --tls-cert-file")
	})
	mux := http.NewServeMux()
	for path, healthy := range map[string]bool{"/make-serving": true, "/make-not-serving": false} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			log.Printf("%s", r.URL.Path)
			h.forced.Store(&healthy)
			io.WriteString(w, time.Since(h.started).String())
		})
	}
	go func() { fail("%v", http.ListenAndServe(fmt.Sprintf(":%d", httpPort), mux)) }()

	var opts []grpc.ServerOption
	if cert != "" {
		creds, err := credentials.NewServerTLSFromFile(cert, key)
		if err != nil {
			fail("Failed to generate credentials %v", err)
		}
		opts = append(opts, grpc.Creds(creds))
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		fail("Error while starting the listening service %v", err)
	}
	s := grpc.NewServer(opts...)
	grpc_health_v1.RegisterHealthServer(s, h)
	log.Printf("gRPC server starting to listen on %s", l.Addr())
	fail("%v", s.Serve(l))
	return 1
}

type healthServer struct {
	grpc_health_v1.UnimplementedHealthServer
	started        time.Time
	service        string
	unhealthyAfter int // seconds, negative for never
	forced         atomic.Pointer[bool]
}

func (h *healthServer) Check(_ context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if req.Service != h.service {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	healthy := h.unhealthyAfter < 0 || time.Since(h.started) < time.Duration(h.unhealthyAfter)*time.Second
	if f := h.forced.Load(); f != nil {
		healthy = healthy && *f
	}
	if healthy {
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
}
