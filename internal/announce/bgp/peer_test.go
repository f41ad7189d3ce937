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
		"peer=192.0.2.1,peer-as=1,as=1,graceful-restart=2m,bfd=300ms,community=no-export,community=64512:100,community=1:2:4294967295,community=rt:64512:4294967295,community=soo:4200000001:7,local-preference=200," +
			"for=192.0.2.0/28,community=65535:65535,for=fd00::/64,local-preference=1,hold-time=3s": {{
			Addr: at("192.0.2.1:179"), AS: 1, OwnAS: 1, Hold: 3 * time.Second, Restart: 2 * time.Minute, BFD: 300 * time.Millisecond, Missed: 3,
			Says: Says{Communities: []uint32{0xffffff01, 64512<<16 | 100}, Large: []Large{{1, 2, 4294967295}}, Extended: []Extended{{false, 64512, 4294967295}, {true, 4200000001, 7}}, Preference: 200},
			Within: []Within{
				{netip.MustParsePrefix("192.0.2.0/28"), Says{Communities: []uint32{0xffffffff}}},
				{netip.MustParsePrefix("fd00::/64"), Says{Preference: 1}},
			},
		}},
		"peer=192.0.2.1,peer-as=1,as=2,bfd=1s,bfd-multiplier=1": {{Addr: at("192.0.2.1:179"), AS: 1, OwnAS: 2, Hold: 9 * time.Second, BFD: time.Second, Missed: 1}},
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
		"peer=192.0.2.1,peer-as=1,as=2,graceful-restart=2h":               "graceful-restart=2h: want whole seconds, 1s to 1h8m15s",
		"peer=192.0.2.1,peer-as=1,as=2,bfd=1ms":                           "bfd=1ms: want whole milliseconds, 10ms to 10s",
		"peer=192.0.2.1,peer-as=1,as=2,bfd-multiplier=3":                  "peer 192.0.2.1:179 has a bfd-multiplier without bfd=DURATION",
		"peer=192.0.2.1,peer-as=1,as=2,bfd=1s,bfd-multiplier=256":         "bfd-multiplier=256: want a number from 1 to 255",
		"peer=192.0.2.1,peer-as=1,as=2,community=65536:1":                 "community=65536:1: want two numbers up to 65535, as 64512:100, three up to 4294967295",
		"peer=192.0.2.1,peer-as=1,as=2,community=rt:65536:65536":          "community=rt:65536:65536: want two numbers",
		"peer=192.0.2.1,peer-as=1,as=2,community=rt:1:2:3":                "community=rt:1:2:3: want two numbers",
		"peer=192.0.2.1,peer-as=1,as=2,community=a:b:c":                   "community=a:b:c: want two numbers",
		"peer=192.0.2.1,peer-as=1,as=2,community=":                        "community=: want two numbers",
		"peer=192.0.2.1,peer-as=1,as=2,for=192.0.2.1/28":                  "for=192.0.2.1/28: want a network",
		"peer=192.0.2.1,peer-as=1,as=1,local-preference=0":                "local-preference=0: want a number from 1",
		"peer=192.0.2.1,peer-as=1,as=2,for=::/0,local-preference=1":       "peer 192.0.2.1:179 is of another autonomous system, which is told no local-preference",
		"peer=192.0.2.1,peer-as=1,as=2,password-file":                     "password-file: want the name of a file",
		"peer=192.0.2.1,peer-as=1,as=2,secret=x":                          "secret=x: want peer=ADDRESS",
		"peer=192.0.2.1,peer-as=1,as=2,peer=192.0.2.1:179,peer-as=3,as=2": "peer 192.0.2.1:179 is named twice",
	} {
		if got, err := ParsePeers([]string{text}); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--load-balancer-bgp") {
			t.Errorf("%s: got %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}
