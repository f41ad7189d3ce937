package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/up"
)

// Recover makes a cluster of one of what a server has that does not run, for when a majority of
// its servers is lost. Writes that only the others had are gone.
func Recover(ctx context.Context, m Machine) error {
	if err := m.complete(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(m.DataDir, "etcd", "member")); err != nil {
		return fmt.Errorf("there is no server's store in %s (--data-dir): %w", m.DataDir, err)
	}
	release, err := m.claim()
	if errors.Is(err, up.ErrRunning) {
		return fmt.Errorf("%w: stop it first (kemudi down), and see to it that the other servers do not come back", err)
	}
	if err != nil {
		return err
	}
	defer release()
	at, err := openMembership(m.DataDir)
	if err != nil {
		return err
	}
	switch now := at.get(); {
	case now.Removed:
		return errRemoved
	case !now.Several:
		return errors.New("this server is the only one of its cluster: there is nothing to recover from; kemudi up starts it")
	}
	if err := etcd.Recover(ctx, etcd.Options{Dir: m.DataDir, Name: m.NodeName, Log: m.Logger.With("part", "etcd")}); err != nil {
		return fmt.Errorf("make a cluster of one of %s: %w", m.DataDir, err)
	}
	return at.setSeveral(m.NodeName, false)
}
