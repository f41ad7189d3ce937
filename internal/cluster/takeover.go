package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/takeover"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// Takeover says which other Kubernetes this cluster continues, each field by its flag.
type Takeover struct {
	Etcd string // --from-etcd: data directory of its etcd, or a snapshot; empty: none
	PKI  string // --from-pki: directory of its keys and certificates, as kubeadm lays it out; empty: they are made anew
}

func (o *Options) checkTakeover() error {
	t := &o.Takeover
	switch {
	case t.Etcd == "" && t.PKI == "":
		return nil
	case t.Etcd == "":
		return errors.New("--from-pki is for a store that is taken over: --from-etcd is missing")
	case o.Ephemeral || len(o.Etcd.Servers) > 0 || len(o.Joining.Servers) > 0:
		return errors.New("--from-etcd puts a store of this server's own into the data directory: it goes neither with --ephemeral nor with --etcd-servers or --server")
	}
	for _, path := range []*string{&t.Etcd, &t.PKI} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
		*path = abs
	}
	return nil
}

// A takeover is made in one directory below the data directory, and finished by a rename
// of it: whoever starts next finds nothing of it, or all, and then puts the parts where they
// belong.
const (
	takingDir = "taking" // what is being made, and the copy of the source
	takenDir  = "taken"  // what is made: directories "pki", if it is taken over, and "etcd"
	etcdDir   = "etcd"
	pkiDir    = "pki"
)

// takeOver makes the store of another Kubernetes this server's own, with its keys if they are
// given, unless that was done by an earlier start.
func (o *Options) takeOver(ctx context.Context) error {
	if err := o.finishTakeover(); err != nil {
		return err
	}
	if o.Takeover.Etcd == "" {
		return nil
	}
	done, err := o.tookOver()
	if err != nil || done {
		return err
	}
	if err := o.checkKeys(); err != nil {
		return err
	}
	taking := filepath.Join(o.DataDir, takingDir)
	defer os.RemoveAll(taking) // what is left is large, and the next start removes it as well
	src, err := takeover.Open(ctx, takeover.Options{Path: o.Takeover.Etcd, Scratch: filepath.Join(taking, "source"), Log: o.Logger.With("part", "takeover")})
	if err != nil {
		return fmt.Errorf("--from-etcd: %w", err)
	}
	defer src.Close() // of what was only read
	o.Step("copied the store of "+o.Takeover.Etcd, false)
	rules, end, err := o.taken(ctx)
	if err != nil {
		return err
	}
	defer end()
	found, err := o.survey(src, func(look func(store.KV) error) func(store.KV) error { return opened(ctx, rules, look) })
	if err != nil {
		return fmt.Errorf("--from-etcd %s: %w", o.Takeover.Etcd, err)
	}
	made := filepath.Join(taking, "made")
	if o.Takeover.PKI != "" {
		if err := o.copyKeys(filepath.Join(made, pkiDir)); err != nil {
			return err
		}
	}
	change := func(store.KV) ([]byte, error) { return nil, nil }
	if o.Takeover.PKI == "" {
		change = withoutToken
	}
	if err := src.Write(ctx, made, o.NodeName, changed(ctx, rules, change)); err != nil {
		return fmt.Errorf("--from-etcd: %w", err)
	}
	if err := wholefile.Private(filepath.Join(made, etcdDir, up.TakeoverMark), []byte(o.Takeover.Etcd+"\n")); err != nil {
		return err
	}
	if err := os.Rename(made, filepath.Join(o.DataDir, takenDir)); err != nil {
		return fmt.Errorf("keep what was taken over: %w", err)
	}
	if err := o.finishTakeover(); err != nil {
		return err
	}
	for _, line := range found.lines() {
		o.Step(line, false)
	}
	return nil
}

// tookOver says whether the data directory has what is to be taken over, and refuses one that
// has another store.
func (o *Options) tookOver() (bool, error) {
	if up.TakenFrom(o.DataDir) == o.Takeover.Etcd {
		o.Logger.Info("the store was taken over by an earlier start", "from", o.Takeover.Etcd)
		return true, nil
	}
	_, err := os.Stat(filepath.Join(o.DataDir, etcdDir))
	switch {
	case err == nil:
		return false, fmt.Errorf("--from-etcd: %s has the store of a cluster already, which stays as it is: start that without the flag, or name another directory (--data-dir)", o.DataDir)
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("--from-etcd: look for a store: %w", err)
	}
	return false, nil
}

// finishTakeover puts what was taken over in its place, and removes what was cut off before.
func (o *Options) finishTakeover() error {
	taken := filepath.Join(o.DataDir, takenDir)
	for _, part := range []string{pkiDir, etcdDir} {
		err := os.Rename(filepath.Join(taken, part), filepath.Join(o.DataDir, part))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("put what was taken over in its place: %w", err)
		}
	}
	for _, dir := range []string{taken, filepath.Join(o.DataDir, takingDir)} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove what a takeover has left: %w", err)
		}
	}
	return nil
}

// withoutToken takes the token out of a secret that has one of an account: with new keys it
// is void. The cluster puts in another, of the account of that name.
func withoutToken(kv store.KV) ([]byte, error) {
	if !strings.HasPrefix(kv.Key, "/registry/"+core.Secrets.StoragePrefix+"/") {
		return nil, nil
	}
	obj, err := watchcache.Decode(core.Secrets.Def, kv.Value, kv.Rev)
	if err != nil {
		return nil, nil // it is told of, and stays
	}
	secret := obj.(*corev1.Secret)
	if secret.Type != corev1.SecretTypeServiceAccountToken {
		return nil, nil
	}
	delete(secret.Data, corev1.ServiceAccountTokenKey)
	delete(secret.Data, corev1.ServiceAccountRootCAKey)
	return watchcache.Encode(core.Secrets.Def, secret)
}

// checkKeys refuses keys beside those that the data directory has.
func (o *Options) checkKeys() error {
	if o.Takeover.PKI == "" {
		return nil
	}
	_, err := os.Stat(filepath.Join(o.DataDir, pkiDir))
	switch {
	case err == nil:
		return fmt.Errorf("--from-pki: %s has keys and certificates already: name another directory (--data-dir), or leave the flag out to keep them", o.DataDir)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--from-pki: look for keys: %w", err)
	}
	return nil
}

// copyKeys copies the keys and certificates of authorities and the key of accounts; whatever
// they sign is made anew for this machine.
func (o *Options) copyKeys(to string) error {
	if err := pki.CopyAuthorities(o.Takeover.PKI, to); err != nil {
		return fmt.Errorf("--from-pki %s: %w; want the files as kubeadm has them: ca.crt and ca.key, sa.key, and front-proxy-ca.crt and .key if there are any. Without the flag, all are made anew", o.Takeover.PKI, err)
	}
	return nil
}
