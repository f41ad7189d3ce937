package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
)

// severed is the API for a server that may be cut off from it.
type severed struct {
	client.Transport
	off atomic.Bool
}

func (s *severed) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	if s.off.Load() {
		return nil, errors.New("the server was killed")
	}
	return s.Transport.Do(ctx, r)
}

// TestVirtualAddressesAreTakenOverWithinThreeSeconds kills who holds them, at ten moments
// between two renewals of the lease.
func TestVirtualAddressesAreTakenOverWithinThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := sim.Start(t.Context(), sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}()
		var longest time.Duration
		for round := range 10 {
			g := task.NewGroup(t.Context())
			held := make(chan string, 2) // each says once that it holds them
			contend := func(name string) *severed {
				api := &severed{Transport: c.API()}
				e := leader.New(leader.Options{
					Settings: virtualElection, Name: fmt.Sprintf("%s-%d", virtualLease, round), Identity: name, Transport: api, Logger: slog.New(slog.DiscardHandler),
				})
				g.Go(name, e.Run)
				g.Go("hold", func(ctx context.Context) error {
					return e.Lead(ctx, func(ctx context.Context) error {
						held <- name
						<-ctx.Done()
						return nil
					})
				})
				return api
			}
			first := contend("first")
			if got := <-held; got != "first" {
				t.Fatalf("got %s", got)
			}
			contend("second")
			time.Sleep(5*time.Second + time.Duration(round)*virtualElection.RetryPeriod/10)
			first.off.Store(true)
			killed := time.Now()
			if got := <-held; got != "second" {
				t.Fatalf("after the first was killed: got %s", got)
			}
			longest = max(longest, time.Since(killed))
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
		if longest == 0 || longest >= 3*time.Second {
			t.Errorf("it took up to %s, want less than 3 s", longest)
		}
		t.Logf("it took up to %s", longest)
	})
}

func TestVirtualAddressesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"127.0.0.1": "--virtual-ip 127.0.0.1: others reach nothing there", "10.0.0.1 10.0.0.2": "one of each family", "10.0.0.1 fd00::1 10.0.0.2": "one of each family",
		"10.0.0.1 fd00::1": "", "": "",
	} {
		var addrs []netip.Addr
		for addr := range strings.FieldsSeq(text) {
			addrs = append(addrs, netip.MustParseAddr(addr))
		}
		if err := checkVirtual(addrs); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
