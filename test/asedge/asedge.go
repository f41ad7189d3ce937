// Package asedge makes the program of a test the edge of a node when it is started as one, as kemudi itself is. It is for tests only.
package asedge

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/edge"
)

// Main runs the tests, or the edge if the program was started as one, which says that it is of a version. It does not return.
func Main(m *testing.M, version string) {
	if os.Getenv(edge.SocketEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := edge.Inherited()
	if err == nil {
		err = edge.New(edge.Options{Control: l, Version: version}).Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
