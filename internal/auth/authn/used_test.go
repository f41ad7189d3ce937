package authn

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// patches are a transport that notes what is patched.
type patches struct {
	client.Transport
	list []string
}

func (p *patches) Do(_ context.Context, r *client.Request) (runtime.Object, error) {
	p.list = append(p.list, fmt.Sprintf("%s %s %s/%s %s", r.Verb, r.Def.Plural, r.Namespace, r.Name, r.Patch))
	return &corev1.Secret{}, nil
}

func TestLastUseOfATokenIsNotedOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, seen := NewUsedTokens(), &patches{}
		g := task.NewGroup(t.Context())
		g.Go("used tokens", func(ctx context.Context) error { return u.Run(ctx, seen, slog.New(slog.DiscardHandler)) })
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "s", UID: "uid"}}
		for range 3 {
			u.Used(s)
			time.Sleep(time.Hour)
		}
		synctest.Wait()
		want := `patch secrets team/s {"metadata":{"uid":"uid","labels":{"kubernetes.io/legacy-token-last-used":"2000-01-01"}}}`
		if len(seen.list) != 1 || seen.list[0] != want {
			t.Fatalf("got %q, want %s alone", seen.list, want)
		}
		time.Sleep(24 * time.Hour)
		noted := s.DeepCopy()
		noted.Labels = map[string]string{"kubernetes.io/legacy-token-last-used": "2000-01-02"}
		u.Used(noted) // by another server
		u.Used(s)     // as an old cache has it
		synctest.Wait()
		want = `patch secrets team/s {"metadata":{"uid":"uid","labels":{"kubernetes.io/legacy-token-last-used":"2000-01-02"}}}`
		if len(seen.list) != 2 || seen.list[1] != want {
			t.Errorf("a day later: got %q, want %s", seen.list[1:], want)
		}
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
