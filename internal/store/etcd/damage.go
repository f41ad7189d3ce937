package etcd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// ErrDamaged says that the files of the data directory cannot be used.
var ErrDamaged = errors.New("the store's files are damaged")

// checkFiles looks at what etcd would end the process for, or would quietly make
// little sense of: a database that cannot be opened, or is there without its log.
// It returns what the database says of itself.
func (o Options) checkFiles() (known, error) {
	db := filepath.Join(o.member(), "snap", "db")
	info, err := os.Stat(db)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return known{}, nil // a first start, or one that was cut off
	}
	if err != nil {
		return known{}, fmt.Errorf("look at the database: %w", err)
	}
	k, err := knownTo(db)
	if err != nil {
		return known{}, o.damaged(fmt.Errorf("open the database %s: %w", db, err))
	}
	logs, err := o.logs()
	if err == nil && len(logs) == 0 && k.applied > 0 {
		return known{}, o.damaged(fmt.Errorf("the write-ahead log that belongs to %s is missing from %s", db, filepath.Join(o.member(), "wal")))
	}
	return k, nil
}

// cutOff says that the log ends before what the database knows: etcd has taken
// damage in its middle for a last write that was cut off. It would pass over all
// new writes until their numbers were beyond that.
func (o Options) cutOff(last, applied uint64) error {
	return o.damaged(fmt.Errorf("the write-ahead log in %s ends with entry %d, and the database has entry %d", filepath.Join(o.member(), "wal"), last, applied))
}

// start starts etcd, and says what can be done if that fails.
func (o Options) start(c *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if r := recover(); r != nil { // how etcd tells of a database that does not fit its log
			err = o.damaged(fmt.Errorf("start etcd in %s: %v", o.member(), r))
		}
	}()
	_, old := o.loggedCluster()
	if e, err = embed.StartEtcd(c); err == nil {
		return e, nil
	}
	if len(o.Join.Members) > 0 && !old {
		return nil, fmt.Errorf("join the other members of the store: %w", err)
	}
	return nil, o.explain(err)
}

func (o Options) explain(err error) error {
	err = fmt.Errorf("start etcd in %s: %w", o.member(), err)
	// What the system refuses is no damage; the rest is what files say.
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return err
	}
	return o.damaged(err)
}

// damaged says what can be done about files that cannot be used.
func (o Options) damaged(err error) error {
	return fmt.Errorf("%w: %w; stop the server and put back a copy of the whole directory %s, or remove that directory to start with an empty cluster", ErrDamaged, err, o.dir())
}

// known is what a database says of itself.
type known struct {
	applied uint64 // the number of the last entry of the log that it has; 0: none
	voters  int    // the members that are no learners
}

func knownTo(db string) (k known, err error) {
	defer func() {
		if r := recover(); r != nil { // how the library tells of pages that make no sense
			err = fmt.Errorf("%v", r)
		}
	}()
	// What it does not check at once is the free list: etcd reads that as well.
	b, err := bbolt.Open(db, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err != nil {
		return known{}, err
	}
	defer b.Close() // of what was only read
	err = b.View(func(tx *bbolt.Tx) error {
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if v := meta.Get([]byte("consistent_index")); len(v) == 8 {
				k.applied = binary.BigEndian.Uint64(v)
			}
		}
		members := tx.Bucket([]byte("members"))
		if members == nil {
			return nil
		}
		return members.ForEach(func(_, v []byte) error {
			var m membership.Member
			if err := json.Unmarshal(v, &m); err != nil {
				return fmt.Errorf("read a member: %w", err)
			}
			if !m.IsLearner {
				k.voters++
			}
			return nil
		})
	})
	return k, err
}
