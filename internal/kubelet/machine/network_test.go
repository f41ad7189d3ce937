package machine

import (
	"slices"
	"testing"
)

func TestTrafficIsReadFromProc(t *testing.T) {
	const dev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0
  eth0: 100      2    3    4    0     0          0         0      500       6    7    8    0     0       0          0
vethab: 1      2    3    4    0     0          0         0      500       6    7    8    0     0       0          0
  bad0: x      2    3    4    0     0          0         0      500       6    7    8    0     0       0          0
`
	want := []Interface{{"eth0", Traffic{100, 2, 3, 4}, Traffic{500, 6, 7, 8}}}
	if got := parseInterfaces(dev); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	const routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\neth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	if got := parseRoutes(routes); got != "eth0" {
		t.Errorf("got %q, want eth0", got)
	}
	if _, err := Interfaces("self"); err != nil {
		t.Error(err)
	}
	if _, err := Interfaces("none"); err == nil {
		t.Error("of no process: got no error")
	}
}
