package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kemudi/kemudi/internal/backup"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
)

// checkBackup: it is the store on this server's disk that is backed up.
func (o *Options) checkBackup() error {
	if o.Backup.Dir != "" && (o.Ephemeral || len(o.Etcd.Servers) > 0) {
		return errors.New("--backup-dir: this server keeps no store on its disk: of one elsewhere (--etcd-servers) make backups there; one in memory (--ephemeral) is meant to end with the server")
	}
	return o.Backup.Check()
}

// backUp makes backups by their schedule, if there are to be any.
func (s *server) backUp(g *task.Group, own *etcd.Server) error {
	if s.o.Backup.Dir == "" {
		return nil
	}
	m, err := backup.NewMaker(backup.MakerOptions{
		Options: s.o.Backup, Server: s.o.NodeName, Keys: filepath.Join(s.o.DataDir, backup.KeysName),
		Snapshot: func(ctx context.Context) (backup.Snapshot, error) {
			taken, err := own.Snapshot(ctx)
			if err != nil {
				return nil, fmt.Errorf("take a snapshot: %w", err)
			}
			return taken, nil
		},
		Logger: s.o.Logger.With("part", "backup"), Registry: s.registry,
	})
	if err != nil {
		return err
	}
	g.Go("backups", m.Run)
	return nil
}
