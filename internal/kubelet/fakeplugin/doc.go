// Package fakeplugin has programs that give a node devices, as vendors write them: a device plugin and a
// driver of dynamic resource allocation, which serve at sockets and do what a test says. It is for
// tests only.
package fakeplugin

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
)

// serve serves at a socket until stop is called, or the test ends.
func serve(t *testing.T, socket string, add func(*grpc.Server)) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	add(s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	stop = sync.OnceFunc(func() {
		s.Stop()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}
