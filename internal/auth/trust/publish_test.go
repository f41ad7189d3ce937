package trust_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
)

// speaker is a server that publishes whom it believes.
type speaker struct {
	*trust.Publisher
	own atomic.Pointer[x509.Certificate] // nil: it cannot say
}

// speak runs a server that believes the clients of an authority of that name.
func speak(t *testing.T, g *task.Group, api client.Transport, name string) *speaker {
	t.Helper()
	s := &speaker{}
	s.Publisher = trust.NewPublisher(api, func() (trust.Trust, error) {
		if c := s.own.Load(); c != nil {
			return trust.Trust{Clients: []*x509.Certificate{c}}, nil
		}
		return trust.Trust{}, errors.New("no file")
	}, slog.New(slog.DiscardHandler))
	if name != "" {
		s.believe(t, name)
	}
	g.Go("publish", s.Run)
	return s
}

func (s *speaker) believe(t *testing.T, name string) {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	s.own.Store(a.Cert)
	s.Changed()
}

func TestServersTogetherSayWhomTheyBelieve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{Alone: true})
		api := p.Admin()
		read := trust.Read(api)
		says := func() string {
			synctest.Wait()
			now, _ := read.Get()
			var names []string
			for _, c := range now.Clients {
				names = append(names, c.Subject.CommonName)
			}
			return strings.Join(names, " ")
		}
		g := task.NewGroup(t.Context())
		defer func() {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}()
		first := speak(t, g, api, "a")
		if got := says(); got != "a" {
			t.Errorf("got %q, want what one server believes", got)
		}
		second := speak(t, g, api, "")
		second.believe(t, "b")
		if got := says(); got != "a b" {
			t.Errorf("got %q, want what both believe", got)
		}
		first.believe(t, "c")
		if got := says(); got != "a b c" {
			t.Errorf("got %q, want the new one beside those that have not ended", got)
		}
		maps := client.For(api, core.ConfigMaps)
		broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: trust.ConfigMap}, Data: map[string]string{"requestheader-allowed-names": "x"}}
		if _, err := maps.Update(t.Context(), broken); err != nil {
			t.Fatal(err)
		}
		if got := says(); got != "c b" && got != "b c" {
			t.Errorf("after somebody broke it: got %q, want what the servers believe now", got)
		}
		if err := maps.Delete(t.Context(), "kube-system", trust.ConfigMap, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := says(); got != "c b" && got != "b c" {
			t.Errorf("after it was deleted: got %q, want what the servers believe now", got)
		}
	})
}
