package backup

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kemudi/kemudi/internal/api/batch"
)

// Options say when a server makes backups by itself, and where.
type Options struct {
	Dir      string // --backup-dir: it is made if it is missing; empty: no backups
	Schedule string // --backup-schedule: a cron expression
	Keep     int    // --backup-keep: how many of this server's stay; 0: all
}

// Defaults are as flags show them: no backups, and when there would be some.
func Defaults() Options { return Options{Schedule: "0 */12 * * *", Keep: 5} }

// Check fills in what is not set, and says what makes no sense, by the name of the flag.
func (o *Options) Check() error {
	o.Schedule = cmp.Or(o.Schedule, Defaults().Schedule)
	s, err := batch.ParseSchedule(o.Schedule)
	switch {
	case err != nil:
		return fmt.Errorf("--backup-schedule %q: %w; want minute, hour, day, month and weekday as cron has them, or such as @daily", o.Schedule, err)
	case s.Next(time.Now()).IsZero():
		return fmt.Errorf("--backup-schedule %q: there is no such day", o.Schedule)
	case o.Keep < 0:
		return fmt.Errorf("--backup-keep %d: want how many backups stay, or 0 for all", o.Keep)
	}
	return nil
}
