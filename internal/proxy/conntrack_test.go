package proxy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

func TestLimitsOfConnectionsAreSetAsAsked(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Conntrack{
		"[]":                             {Min: 131072},
		"[{nf_conntrack_max 131072}]":    {MaxPerCore: 32768, Min: 131072},
		"[{nf_conntrack_max 262144}]":    {MaxPerCore: 131072, Min: 131072},
		"[{nf_conntrack_udp_timeout 9}]": {UDP: 9500 * time.Millisecond},
	} {
		if got := fmt.Sprint(c.settings(2)); got != want {
			t.Errorf("settings of %+v on 2 cores: got %s, want %s", c, got, want)
		}
	}
	h := nettest.New(t, "limits")
	h.Must(func() error {
		return Conntrack{TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour, UDPStream: 7 * time.Minute, TCPLiberal: true}.Set()
	})
	for name, want := range map[string]string{
		"nf_conntrack_tcp_timeout_established": "86400", "nf_conntrack_tcp_timeout_close_wait": "3600",
		"nf_conntrack_udp_timeout_stream": "420", "nf_conntrack_tcp_be_liberal": "1",
	} {
		var got []byte
		h.Must(func() (err error) {
			got, err = os.ReadFile(filepath.Join(conntrackDir, name))
			return err
		})
		if strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: got %q, want %s", name, got, want)
		}
	}
}
