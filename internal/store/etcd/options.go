package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/kemudi/kemudi/internal/store"
)

// Options say where and how the store runs.
type Options struct {
	// Dir is the data directory; the database is in its sub-directory "etcd".
	// Required. It is created if it does not exist.
	Dir string
	// Log gets what the operator should know. Required.
	Log *slog.Logger
	// Name is the member's name in its cluster. Default: the host name.
	Name string
	// History is how long old revisions stay readable. Default 5 minutes.
	History time.Duration
	// ListenClient opens a client port besides, as "https://127.0.0.1:2379", for
	// etcdctl and backup tools; the TLS files must then be set. Default: none.
	ListenClient string
	// CertFile, KeyFile and ClientCAFile are the TLS files of the client port.
	CertFile, KeyFile, ClientCAFile string
	// Peer says how other members reach this one. Default: there are none.
	Peer Peer
	// Join is the cluster that this member belongs to, as AddLearner told it: an empty
	// directory joins it, data of another one is refused. Default: whatever the directory
	// holds, or a new cluster.
	Join Cluster
	// Quota is how large the database may become. Default 8 GiB, the most that etcd recommends.
	Quota int64
	// NoSync does not wait for the disk: a crash may lose writes. For tests only.
	NoSync bool

	questions *questions
}

// withDefaults fills in what is unset and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" || o.Log == nil {
		return o, errors.New("etcd options: Dir and Log must be set")
	}
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("find a name for the etcd member: %w", err)
		}
		o.Name = host
	}
	if o.History == 0 {
		o.History = defaultHistory
	}
	if o.Quota == 0 {
		o.Quota = quotaBytes
	}
	if err := o.Peer.check(); err != nil {
		return o, err
	}
	if o.ListenClient != "" && (o.CertFile == "" || o.KeyFile == "" || o.ClientCAFile == "") {
		return o, errors.New("etcd options: ListenClient needs CertFile, KeyFile and ClientCAFile")
	}
	return o, nil
}

// peerURL is the address that a single member has in its cluster. Nothing
// listens there; it is changed when the cluster gets further members.
const peerURL = "http://127.0.0.1:2380"

// defaultHistory is how long old revisions stay readable.
const defaultHistory = 5 * time.Minute

// maxLearners is how many members may join at a time.
const maxLearners = 4

const (
	quotaBytes = 8 << 30
	// How many writes make a snapshot (the log is read from there on each start),
	// and how many raft entries stay in memory: far below etcd's own values, which
	// would keep 5,000 values for members that a single server does not have. All that were
	// written since the last snapshot are in memory as well.
	snapshotCount  = 1000
	catchUpEntries = 50
	// Each timer that fires costs about 0.1 ms of an idle machine. The election
	// time also is the shortest time to live of a key, divided by 1.5.
	heartbeatMillis = 1000
	electionMillis  = 5000
	// Of several members each tells the others so often that it leads. Who hears nothing
	// for the election time, or up to twice as long, stands for election. What a slow
	// member may lack without needing the whole database is what stays in memory.
	severalHeartbeatMillis = 200
	severalElectionMillis  = 1000
	severalCatchUpEntries  = 1000
	// The database is behind the log by at most so much. Each time that it catches
	// up costs some 30 KB of writes, whether there was one change or a thousand:
	// what comes every ten seconds shall not do that each time. A compaction, which
	// is as rare, makes it catch up as well.
	// Until then what is written is in memory.
	batchInterval = 5 * time.Minute
	batchLimit    = 1000
	// How often etcd looks whether it is being made an older version, which nobody asks it for.
	downgradeInterval = time.Minute
	// The log is read as a whole, twice, on each start.
	logFiles        = 2
	logSegmentBytes = 16 << 20
)

// smallSegments makes the segments of the write-ahead log small: etcd's own
// 64 MB are too much for a small disk, and take long to read at a start.
var smallSegments = sync.OnceFunc(func() { wal.SegmentSizeBytes = logSegmentBytes })

// dir is where the database is.
func (o Options) dir() string { return filepath.Join(o.Dir, "etcd") }

// member is where etcd keeps all that is this member's.
func (o Options) member() string { return filepath.Join(o.dir(), "member") }

// Begun reports whether a member has its log in a server's data directory: it goes on with that, and
// needs no others to tell it who they are.
func Begun(dir string) bool {
	logs, err := Options{Dir: dir}.logs()
	return err == nil && len(logs) > 0
}

// logs are the segments of the log.
func (o Options) logs() ([]string, error) {
	return filepath.Glob(filepath.Join(o.member(), "wal", "*.wal"))
}

// database is the file that the store is kept in.
func (o Options) database() string { return filepath.Join(o.member(), "snap", "db") }

func (o Options) config() (*embed.Config, error) {
	smallSegments()
	quieten()
	c := embed.NewConfig()
	c.Name, c.Dir = o.Name, o.dir()
	if err := o.setCluster(c); err != nil {
		return nil, err
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil
	c.MaxLearners = maxLearners
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = heartbeatMillis, electionMillis
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotCount, catchUpEntries
	if o.Peer.set() {
		c.TickMs, c.ElectionMs = severalHeartbeatMillis, severalElectionMillis
		c.SnapshotCatchUpEntries = severalCatchUpEntries
	}
	c.MaxWalFiles, c.MaxSnapFiles = logFiles, logFiles
	c.BackendBatchInterval, c.BackendBatchLimit = batchInterval, batchLimit
	c.DowngradeCheckTime = downgradeInterval
	c.QuotaBackendBytes = o.Quota
	// The limit is on the encoded request; leave room around the values.
	c.MaxRequestBytes = store.MaxTxnBytes + 512<<10
	c.MaxTxnOps = 10_000
	c.UnsafeNoFsync = o.NoSync
	c.WarningApplyDuration, c.WarningUnaryRequestDuration = time.Second, time.Second
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(slogCore{log: o.Log.With("component", "etcd")}))
	if o.ListenClient != "" {
		u, err := url.Parse(o.ListenClient)
		if err != nil {
			return nil, fmt.Errorf("parse etcd client URL %q: %w", o.ListenClient, err)
		}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*u}, []url.URL{*u}
		c.ClientTLSInfo = transport.TLSInfo{
			CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.ClientCAFile, ClientCertAuth: true,
		}
	}
	return c, nil
}
