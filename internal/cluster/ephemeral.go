package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/internal/worker"
)

// A server whose store is in memory leaves a mark while it runs. Whoever starts next with
// the same data directory, after a crash for example, removes what such a cluster had on the
// machine: its pods would be nobody's.

func (o *Options) checkEphemeral() error {
	if o.Ephemeral && (len(o.Etcd.Servers) > 0 || len(o.Joining.Servers) > 0) {
		return errors.New("--ephemeral keeps the store in memory, of one server: it goes neither with --etcd-servers nor with --server")
	}
	return nil
}

// markEphemeral refuses a data directory that has a store, and leaves the mark.
func (o *Options) markEphemeral() error {
	_, err := os.Stat(filepath.Join(o.DataDir, "etcd"))
	switch {
	case err == nil:
		return fmt.Errorf("--ephemeral: %s has the store of a cluster, which stays as it is: name another directory (--data-dir), or remove that cluster (kemudi reset)", o.DataDir)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--ephemeral: look for a store: %w", err)
	}
	what := []byte("server\n")
	if !o.NoNode {
		what = append(what, withNode...)
	}
	return wholefile.Private(up.EphemeralMark(o.DataDir), what)
}

// withNode is in the mark of a server that ran pods.
const withNode = "node\n"

// forgetEphemeral removes what a cluster that is gone had on this machine, if there was one:
// all but keys, by which people and machines know it again, the log, and files of people.
func (o *Options) forgetEphemeral(ctx context.Context) error {
	mark, err := os.ReadFile(up.EphemeralMark(o.DataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for what an ephemeral cluster has left: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, up.ForgetPatience)
	defer cancel()
	if strings.Contains(string(mark), withNode) {
		for _, r := range Removers(o.DataDir, o.RunDir) {
			removed, err := r.Remove(ctx)
			if err != nil {
				return fmt.Errorf("remove what an ephemeral cluster has left: %s: %w", r.Part, err)
			}
			if len(removed) > 0 {
				o.Logger.Info("removed what an ephemeral cluster has left", "of", r.Part, "things", len(removed))
			}
		}
	}
	err = worker.RemovePods(o.DataDir)
	if err == nil {
		err = os.Remove(up.EphemeralMark(o.DataDir))
	}
	if err != nil {
		return fmt.Errorf("remove what an ephemeral cluster has left: %w", err)
	}
	return nil
}
