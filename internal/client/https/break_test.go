package https_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/authentication"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/test/wait"
)

// followed is a cache whose followers hold every event against what they saw.
type followed struct {
	b      *bed
	c      *cache.Cache
	wg     sync.WaitGroup
	states [2]map[string]int64
}

func (b *bed) follow(t client.Transport) *followed {
	b.Helper()
	f := &followed{b: b, c: t.Cache(core.ConfigMaps.Def, "")}
	select {
	case <-f.c.Synced():
	case <-b.ctx.Done():
		b.Fatal(context.Cause(b.ctx))
	}
	for i := range f.states {
		f.wg.Go(func() {
			var err error
			if f.states[i], err = clienttest.Replay(b.ctx, f.c, "last"); err != nil {
				b.Errorf("follower %d: %v", i, err)
			}
		})
	}
	return f
}

// end makes the last object, and holds what the followers know against the API.
func (f *followed) end() {
	f.b.Helper()
	f.b.put("last")
	f.wg.Wait()
	for i, state := range f.states {
		if err := clienttest.Compare(f.b.ctx, f.b.local(), state); err != nil {
			f.b.Errorf("follower %d: %v", i, err)
		}
	}
}

func (b *bed) put(name string) *corev1.ConfigMap {
	b.Helper()
	cm, err := client.For(b.local(), core.ConfigMaps).Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	b.must(err)
	return cm
}

// shows waits until a cache shows an object.
func (b *bed) shows(c *cache.Cache, cm *corev1.ConfigMap) {
	b.Helper()
	rev := int64(0)
	if _, err := fmt.Sscan(cm.ResourceVersion, &rev); err != nil {
		b.Fatal(err)
	}
	if err := c.WaitRev(b.ctx, rev); err != nil {
		b.Fatalf("the cache, which is at %d, does not reach %d: %v", c.Rev(), rev, err)
	}
	if it := c.Get(cache.Key(cm.Namespace, cm.Name)); it == nil || it.Object.GetUID() != cm.UID {
		b.Errorf("%s: got %v", cm.Name, it)
	}
}

func TestNothingIsLostOrDoubledWhenConnectionsBreak(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	f := b.follow(b.remote(&l))
	var cuts atomic.Int32
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				cuts.Add(int32(l.cut(false)))
			}
		}
	})
	var writers sync.WaitGroup
	for _, prefix := range []string{"x", "y", "z"} {
		writers.Go(func() {
			for cuts.Load() < 20 && b.ctx.Err() == nil {
				if err := clienttest.Churn(b.ctx, b.local(), prefix, 50); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	cutter.Wait()
	f.end()
}

func TestNothingIsLostOrDoubledWhenTheServerRestarts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	remote := b.remote(&l)
	f := b.follow(remote)
	for round := range 4 {
		if err := clienttest.Churn(b.ctx, b.local(), "x", 50); err != nil {
			t.Fatal(err)
		}
		// Whoever writes while the server goes down and comes back gets errors,
		// and does not know what was done: the followers must.
		ctx, cancel := context.WithCancel(b.ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = clienttest.Churn(ctx, remote, "y", 10)
			}
		})
		b.stop()
		b.start()
		if err := clienttest.Churn(b.ctx, b.local(), "z", 50); err != nil {
			t.Fatal(err)
		}
		cancel()
		wg.Wait()
		b.shows(f.c, b.put(fmt.Sprint("round", round)))
	}
	f.end()
}

func TestChangesThatWereCompactedWhileCutOffAreSeen(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	remote := b.remote(&l)
	goes, stays, again := b.put("goes"), b.put("stays"), b.put("again")
	f := b.follow(remote)
	b.shows(f.c, again)
	if l.cut(true) == 0 {
		t.Fatal("nothing was connected")
	}
	maps := client.For(b.local(), core.ConfigMaps)
	b.must(maps.Delete(b.ctx, "default", goes.Name, metav1.DeleteOptions{}))
	b.must(maps.Delete(b.ctx, "default", again.Name, metav1.DeleteOptions{}))
	remade := b.put("again")
	changed := stays.DeepCopy()
	changed.Data = map[string]string{"k": "v"}
	changed, err := maps.Update(b.ctx, changed)
	b.must(err)
	b.must(clienttest.Churn(b.ctx, b.local(), "x", 50))
	rev := b.put("mark").ResourceVersion
	var n int64
	if _, err := fmt.Sscan(rev, &n); err != nil {
		t.Fatal(err)
	}
	b.must(b.store.Compact(b.ctx, n))
	b.stop() // the server's own log is gone as well
	b.start()
	l.mend()
	b.shows(f.c, remade)
	b.shows(f.c, b.put("after"))
	if it := f.c.Get("default/goes"); it != nil {
		t.Errorf("deleted while cut off: got %v", it.Object)
	}
	if it := f.c.Get("default/stays"); it == nil || it.Object.GetResourceVersion() != changed.ResourceVersion {
		t.Errorf("changed while cut off: got %v, want revision %s", it, changed.ResourceVersion)
	}
	f.end()
}

func TestTokenIsReadAgainWhenItsFileChanges(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		b.must(os.WriteFile(path+".new", []byte(token+"\n"), 0o600))
		b.must(os.Rename(path+".new", path))
	}
	write("good")
	remote := b.remote(&l, func(o *https.Options) { o.Token = https.TokenFile(path) })
	f := b.follow(remote)
	who := func() (string, error) {
		self, err := client.For(remote, authentication.SelfSubjectReviews).Create(b.ctx, &authenticationv1.SelfSubjectReview{})
		if err != nil {
			return "", err
		}
		return self.Status.UserInfo.Username, nil
	}
	if name, err := who(); name != "agent" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	b.tokens.set(map[string]string{"newer": "agent-2"}) // the old one is revoked
	l.cut(false)
	wait.Until(t, func() error { // a call that the cut itself ends says so, and is not one that was refused
		if _, err := who(); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("with a revoked token: got %v, want it unauthorized", err)
		}
		return nil
	})
	b.must(clienttest.Churn(b.ctx, b.local(), "x", 50)) // the cache does not follow meanwhile
	write("newer")
	if name, err := who(); name != "agent-2" || err != nil {
		t.Errorf("with the new token: got %q, %v", name, err)
	}
	b.shows(f.c, b.put("after"))
	b.must(os.Remove(path)) // as in the middle of a replacement
	if name, err := who(); name != "agent-2" || err != nil {
		t.Errorf("without the file: got %q, %v, want the last token used", name, err)
	}
	f.end()
}

func TestClientCertificateIsShownAnewWhenItsFilesChange(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c.crt"), filepath.Join(dir, "c.key")
	write := func(name string) {
		pair, err := b.pki.CA.Issue(pki.Subject{Name: name, Organizations: []string{"system:masters"}, Client: true})
		b.must(err)
		key, err := pair.KeyPEM()
		b.must(err)
		b.must(wholefile.Private(certFile, pair.CertPEM()))
		b.must(wholefile.Private(keyFile, key))
	}
	write("one")
	remote := b.remote(&l, func(o *https.Options) { o.Token, o.Certificate = nil, https.CertificateFiles(certFile, keyFile) })
	f := b.follow(remote)
	for _, name := range []string{"one", "two", "three"} {
		if name != "one" {
			write(name)
		}
		self, err := client.For(remote, authentication.SelfSubjectReviews).Create(b.ctx, &authenticationv1.SelfSubjectReview{})
		if err != nil || self.Status.UserInfo.Username != name {
			t.Errorf("got %v, %v, want to be %s", self, err, name)
		}
		b.shows(f.c, b.put(name))
	}
	f.end()
}

func TestServerThatIsNotTheClustersIsNotTrusted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	other, err := pki.Ensure(pki.Options{Dir: t.TempDir()})
	b.must(err)
	remote := b.remote(&l, func(o *https.Options) { o.CA = other.CA.CertPEM() })
	_, err = client.For(remote, core.ConfigMaps).Get(b.ctx, "default", "a")
	if err == nil || !strings.Contains(err.Error(), "get configmaps a: ") || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("got %v", err)
	}
}

func TestCacheIsFedAgainByAnotherRun(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	tr, err := https.New(https.Options{
		Servers: []string{"https://" + b.addr}, CA: b.pki.CA.CertPEM(), Dial: l.dial, Token: func() (string, error) { return "good", nil },
	})
	b.must(err)
	c := tr.Cache(core.ConfigMaps.Def, "")
	for i := range 3 {
		g := task.NewGroup(b.ctx)
		g.Go("remote", tr.Run)
		b.shows(c, b.put(fmt.Sprint("m", i)))
		g.Cancel(context.Canceled)
		b.must(g.Wait())
		b.put(fmt.Sprint("between", i))
	}
}
