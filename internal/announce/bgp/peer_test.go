package bgp

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPeersAreReadAsPeopleSayThem(t *testing.T) {
	at := netip.MustParseAddrPort
	for text, want := range map[string][]Peer{
		"":                                      nil,
		"peer=192.0.2.1,peer-as=64512,as=64513": {{Addr: at("192.0.2.1:179"), AS: 64512, OwnAS: 64513, Hold: 9 * time.Second}},
		"peer=fd00::1,as=4200000001,peer-as=4200000001,hold-time=90s": {{Addr: at("[fd00::1]:179"), AS: 4200000001, OwnAS: 4200000001, Hold: 90 * time.Second}},
		"peer=[fe80::1%eth0]:1179,peer-as=1,as=2,password-file=/etc/key,peer=::ffff:192.0.2.2,peer-as=1,as=2": {
			{Addr: at("[fe80::1%eth0]:1179"), AS: 1, OwnAS: 2, Hold: 9 * time.Second, PasswordFile: "/etc/key"},
			{Addr: at("192.0.2.2:179"), AS: 1, OwnAS: 2, Hold: 9 * time.Second},
		},
	} {
		got, err := ParsePeers([]string{text})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
		if parts, err := ParsePeers(strings.Split(text, ",")); err != nil || !reflect.DeepEqual(parts, want) {
			t.Errorf("%q in parts: got %+v, %v, want %+v", text, parts, err, want)
		}
	}
}

func TestPeersThatCannotBeAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"peer-as=1":                                                       `"peer-as=1" comes before any peer=ADDRESS`,
		"peer=router,peer-as=1,as=2":                                      "peer=router: want an address",
		"peer=192.0.2.1,as=2":                                             "peer 192.0.2.1:179 wants the numbers of two autonomous systems",
		"peer=192.0.2.1,peer-as=1":                                        "peer 192.0.2.1:179 wants the numbers of two autonomous systems",
		"peer=192.0.2.1,peer-as=0,as=2":                                   `peer-as=0: "0" is not the number of an autonomous system`,
		"peer=192.0.2.1,peer-as=23456,as=2":                               `"23456" is not the number`,
		"peer=192.0.2.1,peer-as=1,as=4294967296":                          `"4294967296" is not the number`,
		"peer=192.0.2.1,peer-as=1,as=2,hold-time=2s":                      "hold-time=2s: want whole seconds, 3s to 18h12m15s",
		"peer=192.0.2.1,peer-as=1,as=2,hold-time=10":                      "hold-time=10: time: missing unit",
		"peer=192.0.2.1,peer-as=1,as=2,password-file":                     "password-file: want the name of a file",
		"peer=192.0.2.1,peer-as=1,as=2,secret=x":                          "secret=x: want peer=ADDRESS",
		"peer=192.0.2.1,peer-as=1,as=2,peer=192.0.2.1:179,peer-as=3,as=2": "peer 192.0.2.1:179 is named twice",
	} {
		if got, err := ParsePeers([]string{text}); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--load-balancer-bgp") {
			t.Errorf("%s: got %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}
