package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/backup"
	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/up"
)

func newBackup() *cobra.Command {
	dataDir := cluster.DefaultDataDir
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the cluster's store and keys to a file; it goes on meanwhile",
		Long: `Writes a backup of the cluster to a file, while its server on this machine runs: an archive
of ` + backup.StoreName + `, a snapshot of the store, and of the directory ` + backup.KeysName + `, the keys by which machines and people know
the cluster. Of several servers that of one is enough. A file of that name is replaced when the
new one is whole. Who has the file is the cluster's administrator: keep it as the keys themselves.

A server that is given --backup-dir makes them by itself, by --backup-schedule.

What is in volumes is not part of it, nor are images, or the keys of --encryption-provider-config.

To go on from it, on a machine without a cluster (kemudi reset), unpack it and name its parts.`,
		Example: `  kemudi backup /backups/cluster.tgz

  mkdir old && tar -C old -xzf /backups/cluster.tgz
  kemudi up --from-etcd old/` + backup.StoreName + ` --from-pki old/` + backup.KeysName,
		Args: oneArg,
		RunE: func(c *cobra.Command, args []string) error {
			err := up.Backup(c.Context(), dataDir, args[0], func(left int64) {
				fmt.Fprintf(c.ErrOrStderr(), "%d MiB of the store are left\n", left>>20)
			})
			if err != nil {
				return errAsking{err}
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return fmt.Errorf("look at the backup: %w", err)
			}
			fmt.Fprintf(c.OutOrStdout(), "wrote %s, %d bytes\n", args[0], info.Size())
			return nil
		},
	}
	c.Flags().Var((*dirFlag)(&dataDir), "data-dir", "directory of the state of a server on this machine")
	return c
}
