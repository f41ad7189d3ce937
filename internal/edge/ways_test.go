package edge

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kemudi/kemudi/test/serve"
)

// TestAnswersAreTheSameByBothWays asks without a body, which is sent by package lines, and with one, which is not.
func TestAnswersAreTheSameByBothWays(t *testing.T) {
	const (
		hints    = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
		trailing = "HTTP/1.1 201 Created\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: 2\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nall\r\n0\r\nX-Sum: 9\r\n\r\n"
	)
	for _, tc := range []struct {
		name, answer  string
		code          int
		text, trailer string
		informed      []int
		connections   int32 // for three requests without bodies; the library may make more
	}{
		{"whole", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall", 200, "all", "", nil, 1},
		{"with hints and trailers", hints + trailing, 201, "all", "9", []int{103}, 1},
		{"of a status that is none", "HTTP/1.1 000 OK\r\nContent-Length: 3\r\n\r\nall", 502, "the service cannot be reached\n", "", nil, 3},
		{"that is two", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nallHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", 200, "all", "", nil, 3},
		{"in another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", 502, "the service cannot be reached\n", "", nil, 3},
	} {
		for _, body := range []string{"", "some"} {
			t.Run(strings.TrimSpace(tc.name+" "+body), func(t *testing.T) {
				b := newBed(t)
				var made atomic.Int32
				b.serve("web.com", nil, serve.TCP(t, func(c net.Conn) {
					made.Add(1)
					for in := bufio.NewReader(c); ; {
						r, err := http.ReadRequest(in)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, r.Body)  // it is what the test has sent
						_, _ = io.WriteString(c, tc.answer) // who has gone is heard of
					}
				}))
				client := b.client()
				for range 3 {
					var informed []int
					r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
						if h.Get("Link") != "</a.css>" {
							t.Errorf("got %v with %d, want the hint", h, code)
						}
						informed = append(informed, code)
						return nil
					}}), http.MethodPost, "http://web.com/", strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					res, err := client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					text, err := io.ReadAll(res.Body)
					res.Body.Close()
					if res.StatusCode != tc.code || string(text) != tc.text || err != nil || res.Trailer.Get("X-Sum") != tc.trailer || !slices.Equal(informed, tc.informed) {
						t.Errorf("got %d, %q, %v, trailers %v, %d before, want %+v", res.StatusCode, text, err, res.Trailer, informed, tc)
					}
					if res.Header.Get("X-Hop") != "" || res.Header.Get("Keep-Alive") != "" || tc.trailer != "" && res.Header.Get("X-Kept") != "2" {
						t.Errorf("got headers %v, want none that are for the edge alone", res.Header)
					}
				}
				if got := made.Load(); got != tc.connections && body == "" {
					t.Errorf("got %d connections to the endpoint, want %d", got, tc.connections)
				}
			})
		}
	}
}
