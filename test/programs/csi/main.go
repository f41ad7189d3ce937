package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: csi SOCKET")
	}
	if err := serve(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// serve answers at a socket until the process is told to end.
func serve(socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	lis, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", socket, err)
	}
	d := newDriver()
	s := grpc.NewServer(grpc.UnaryInterceptor(tell))
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	context.AfterFunc(ctx, s.Stop)
	return s.Serve(lis)
}

// tell prints each call that changes something, and what became of it.
func tell(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	name := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	if !strings.HasPrefix(name, "Get") && !strings.HasPrefix(name, "ControllerGet") && name != "Probe" {
		fmt.Println(name, err)
	}
	return resp, err
}
