package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// encryptionFile has secrets encrypted by the first of the providers.
func (c *cluster) encryptionFile(t *testing.T, providers string) (file string) {
	t.Helper()
	file = filepath.Join(c.Dir, "encryption.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [" + providers + "]}]\n"
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return file
}

// encryption is how secrets lie in the store.
func (c *cluster) encryption(ctx context.Context) (s up.EncryptionState, _ error) {
	data, err := c.client.CoreV1().RESTClient().Get().AbsPath("/kemudi.io/v1/encryption").DoRaw(ctx)
	if err != nil {
		return s, err
	}
	var all []up.EncryptionState
	if err := json.Unmarshal(data, &all); err != nil || len(all) != 1 {
		return s, fmt.Errorf("got %s: %w", data, err)
	}
	return all[0], nil
}

// TestRotationOfSecretsSurvivesKills kills the server while secrets are rewritten, again and again.
func TestRotationOfSecretsSurvivesKills(t *testing.T) {
	t.Parallel()
	const secrets, writers = 1600, 16
	const old = "{aescbc: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}}"
	const next = "{aesgcm: {keys: [{name: b, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}]}}"
	c := &cluster{machine: newMachine(t)}
	c.args = []string{"--disable-agent", "--encryption-provider-config", c.encryptionFile(t, old), "--encryption-provider-config-automatic-reload"}
	c.setOutBare(t)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < secrets; i += writers {
				name := fmt.Sprintf("s%d", i)
				s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"k": name}}
				if _, err := c.client.CoreV1().Secrets("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c.encryptionFile(t, next+", "+old)
	left := 0
	wait.Until(t, func() error {
		s, err := c.encryption(t.Context())
		if err == nil && s.Writes != "k8s:enc:aesgcm:v1:b:" {
			err = fmt.Errorf("new secrets begin with %s", s.Writes)
		}
		left = s.Stale
		return err
	})
	cutOff := 0
	for range 3 {
		cmd := c.command(t.Context(), c.bin, "secrets", "rotate", "--data-dir", c.DataDir)
		if err := c.machine.start(cmd); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, func() error {
			s, err := c.encryption(t.Context())
			if err == nil && s.Stale == left && left > 0 {
				err = fmt.Errorf("%d of %d secrets are stale", s.Stale, s.Objects)
			}
			return err
		})
		c.kill(syscall.SIGKILL)
		if err := cmd.Wait(); err != nil {
			cutOff++
		}
		c.serve(t)
		s, err := c.encryption(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if left = s.Stale; s.Unreadable > 0 {
			t.Errorf("%d secrets cannot be read", s.Unreadable)
		}
	}
	if cutOff == 0 {
		t.Error("no rotation was cut off")
	}
	if out := c.run(t.Context(), nil, c.bin, "secrets", "rotate", "--data-dir", c.DataDir); out.code != 0 {
		t.Fatalf("rotate: %d: %s", out.code, out.all())
	}
	if s, err := c.encryption(t.Context()); err != nil || s.Stale > 0 || s.Unreadable > 0 || s.Stored["k8s:enc:aesgcm:v1:b:"] != s.Objects {
		t.Errorf("in the end: %+v, %v", s, err)
	}
	list, err := c.client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != secrets {
		t.Fatalf("got %d secrets, want %d: %v", len(list.Items), secrets, err)
	}
	for i := range list.Items {
		if s := &list.Items[i]; string(s.Data["k"]) != s.Name {
			t.Errorf("%s says %q", s.Name, s.Data["k"])
		}
	}
}
