package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	kmsv2 "k8s.io/kms/apis/v2"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// vault is a KMS plugin, as a process of its own would be.
type vault struct {
	kmsv2.UnimplementedKeyManagementServiceServer
	mu struct {
		sync.Mutex
		key   string // its ID
		lies  string // the ID by which it says it has encrypted; empty: the truth
		wrong bool   // what it decrypts is something else
		hangs bool
		calls int // of Decrypt
	}
}

func (v *vault) set(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

// now is the ID of its key, when it answers.
func (v *vault) now(ctx context.Context) (string, error) {
	v.mu.Lock()
	key, hangs := v.mu.key, v.mu.hangs
	v.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return key, nil
}

func (v *vault) Status(ctx context.Context, _ *kmsv2.StatusRequest) (*kmsv2.StatusResponse, error) {
	key, err := v.now(ctx)
	return &kmsv2.StatusResponse{Version: "v2", Healthz: "ok", KeyId: key}, err
}

func (v *vault) Encrypt(ctx context.Context, q *kmsv2.EncryptRequest) (*kmsv2.EncryptResponse, error) {
	key, err := v.now(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.lies != "" {
		key = v.mu.lies
	}
	return &kmsv2.EncryptResponse{Ciphertext: append([]byte(key+":"), q.Plaintext...), KeyId: key, Annotations: map[string][]byte{"vault.example.com": []byte("1")}}, err
}

func (v *vault) Decrypt(ctx context.Context, q *kmsv2.DecryptRequest) (*kmsv2.DecryptResponse, error) {
	_, err := v.now(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.calls++
	seed, ok := bytes.CutPrefix(q.Ciphertext, []byte(q.KeyId+":"))
	if !ok {
		return nil, fmt.Errorf("not encrypted by key %s", q.KeyId)
	}
	if v.mu.wrong {
		seed = bytes.Repeat([]byte{7}, len(seed))
	}
	return &kmsv2.DecryptResponse{Plaintext: seed}, err
}

// serve serves the plugin until the end, or until stop is called.
func (v *vault) serve(t *testing.T, path string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	kmsv2.RegisterKeyManagementServiceServer(s, v)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	stop = sync.OnceFunc(func() { s.Stop(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// bed is a Keeper that runs on a file.
type bed struct {
	*Keeper
	t        *testing.T
	file     string
	registry *prometheus.Registry
	log      *lines
	readable chan struct{}
}

// lines is a log.
type lines struct {
	mu struct {
		sync.Mutex
		text strings.Builder
	}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.text.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.mu.text.String(), text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// newBed runs a Keeper until the end; what of the file follows its first lines is given.
func newBed(t *testing.T, text string) *bed {
	t.Helper()
	b := &bed{t: t, file: filepath.Join(t.TempDir(), "encryption.yaml"), registry: prometheus.NewRegistry(), log: &lines{}, readable: make(chan struct{}, 1)}
	write(t, b.file, text)
	var err error
	b.Keeper, err = Open(t.Context(), Options{
		File: b.file, Reload: true, Defs: api.All(), Server: "test", Registry: b.registry, Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.OnReadable(func(context.Context) error {
		select {
		case b.readable <- struct{}{}:
		default:
		}
		return nil
	})
	g := task.NewGroup(t.Context())
	g.Go("keeper", b.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return b
}

const secretKey = "/registry/secrets/default/one"

// seal encrypts a value, and open opens one.
func (b *bed) seal(value string) ([]byte, error) {
	return b.Rules()(secretKey).Seal([]byte(value), secretKey)
}

func (b *bed) open(stored []byte) (string, bool, error) {
	value, stale, err := b.Rules()(secretKey).Open(b.t.Context(), stored, secretKey)
	return string(value), stale, err
}

// mustSeal is a value that is encrypted by a key of the plugin.
func (b *bed) mustSeal(value, key string) []byte {
	b.t.Helper()
	var stored []byte
	wait.Until(b.t, func() (err error) {
		if stored, err = b.seal(value); err == nil && !bytes.Contains(stored, []byte(key+":")) {
			err = errors.New("it is encrypted by another key")
		}
		return err
	})
	return stored
}

// counted is the value of a counter or gauge, all of its labels in sum.
func (b *bed) counted(name string, labels ...string) (sum float64) {
	b.t.Helper()
	all, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(labels) == 0 || strings.Contains(m.String(), labels[0])) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestPluginMayComeLaterGoAndHaveOtherKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kms.sock")
	b := newBed(t, "- resources: [secrets]\n  providers: [{kms: {apiVersion: v2, name: vault, endpoint: 'unix://"+path+"', timeout: 300ms}}, {identity: {}}]\n")
	if err := b.Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), "kms-provider-0: failed to perform status section of the healthz check for KMS Provider vault, error: ") {
		t.Errorf("without a plugin: got %v", err)
	}
	if _, err := b.seal("v"); err == nil {
		t.Error("encrypted without a plugin")
	}
	v := &vault{}
	v.mu.key = "first"
	stop := v.serve(t, path)
	first := b.mustSeal("v", "first")
	<-b.readable // what could not be read is read again
	if err := b.Healthy(t.Context()); err != nil {
		t.Error(err)
	}

	// It goes: nothing is asked of it that is known.
	stop()
	if value, stale, err := b.open(first); err != nil || stale || value != "v" {
		t.Errorf("without the plugin: got %q, stale %t, %v", value, stale, err)
	}
	if _, err := b.seal("w"); err != nil {
		t.Errorf("without the plugin, for a while: %v", err)
	}
	wait.Until(t, func() error {
		if err := b.Healthy(t.Context()); err == nil {
			return errors.New("it is healthy although it is gone")
		}
		return nil
	})

	// It returns with another key.
	v.set(func() { v.mu.key = "second" })
	v.serve(t, path)
	second := b.mustSeal("v", "second")
	if value, stale, err := b.open(first); err != nil || !stale || value != "v" {
		t.Errorf("encrypted by the key before: got %q, stale %t, %v", value, stale, err)
	}
	if _, stale, err := b.open(second); err != nil || stale {
		t.Errorf("encrypted by today's key: stale %t, %v", stale, err)
	}

	// It says one key and uses another: the last good one stays in force.
	v.set(func() { v.mu.key, v.mu.lies = "third", "fourth" })
	p := b.now.Load().plugins[0]
	p.ask()
	wait.Until(t, func() error {
		if err := p.last(); err == nil || !strings.Contains(err.Error(), "failed to rotate DEK") {
			return fmt.Errorf("a plugin that lies about its key: got %w", err)
		}
		return nil
	})
	b.mustSeal("v", "second")
	for _, name := range []string{"apiserver_envelope_encryption_kms_operations_latency_seconds", "apiserver_envelope_encryption_key_id_hash_total",
		"apiserver_storage_transformation_operations_total", "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds"} {
		if b.counted(name) == 0 {
			t.Errorf("%s counts nothing", name)
		}
	}
	if b.log.has("first") && !b.log.has("sha256:") || b.log.has("\"v\"") {
		t.Error("the log has keys or values")
	}
}

func TestPluginThatHangsOrDecryptsWronglyHoldsUpNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kms.sock")
	v := &vault{}
	v.mu.key = "first"
	v.serve(t, path)
	config := "- resources: [secrets]\n  providers: [{kms: {apiVersion: v2, name: vault, endpoint: 'unix://" + path + "', timeout: 200ms}}]\n"
	stored := newBed(t, config).mustSeal("v", "first")

	b := newBed(t, config) // another server, which does not know the data key
	v.set(func() { v.mu.hangs = true })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, _, err := b.open(stored); err == nil || !strings.Contains(err.Error(), "failed to decrypt DEK, error: ") {
				t.Errorf("a plugin that hangs: got %v", err)
			}
		})
	}
	wg.Wait()
	v.set(func() {
		if v.mu.calls > 1 {
			t.Errorf("20 who want one data key asked %d times, want once", v.mu.calls)
		}
		v.mu.hangs, v.mu.wrong = false, true
	})
	b.now.Load().plugins[0].envelope.Forget()
	if _, _, err := b.open(stored); err == nil || err.Error() != "cipher: message authentication failed" {
		t.Errorf("a plugin that decrypts to something else: got %v", err)
	}
	v.set(func() { v.mu.wrong = false })
	b.now.Load().plugins[0].envelope.Forget()
	if value, _, err := b.open(stored); err != nil || value != "v" {
		t.Errorf("and then rightly: got %q, %v", value, err)
	}
}

var _ seal.Plugin = (*plugin)(nil)
