package etcd

import (
	"encoding/binary"
	"io"
	"os"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// metadataRecord is the type of the record with which each segment of the log says whose it
// is, behind one with a checksum.
const metadataRecord = 1

// loggedCluster is the ID of the cluster that the log is of. Of a log that cannot be read
// etcd's own start says what is wrong.
func (o Options) loggedCluster() (id uint64, ok bool) {
	logs, err := o.logs()
	if err != nil || len(logs) == 0 {
		return 0, false
	}
	f, err := os.Open(slices.Min(logs))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.ErrUnexpectedEOF {
		return 0, false
	}
	for head = head[:n]; len(head) > 8; {
		// A record is its length in 7 bytes, a byte that says how it is padded to
		// eight, and its data.
		frame := binary.LittleEndian.Uint64(head)
		size := int(frame & (1<<32 - 1))
		if head = head[8:]; size == 0 || size > len(head) {
			return 0, false
		}
		var r walpb.Record
		if proto.Unmarshal(head[:size], &r) != nil {
			return 0, false
		}
		if r.GetType() == metadataRecord {
			var meta etcdserverpb.Metadata
			if proto.Unmarshal(r.GetData(), &meta) != nil {
				return 0, false
			}
			return meta.GetClusterID(), meta.GetClusterID() != 0
		}
		head = head[min(len(head), (size+7)/8*8):]
	}
	return 0, false
}
