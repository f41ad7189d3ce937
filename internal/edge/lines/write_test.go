package lines

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// FuzzRequestIsTheOneThatTheLibrarySends sends what a client has asked for, with one more header, and one beside them, as an edge does.
func FuzzRequestIsTheOneThatTheLibrarySends(f *testing.F) {
	f.Add("GET /a/b?c=d HTTP/1.1\r\nHost: web.com\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n", "X-Id", "7")
	f.Add("POST /%2e%2e/?q=%zz HTTP/1.1\r\nHost: web.com:80\r\nContent-Length: 0\r\n\r\n", "Host", "other.com")
	f.Add("GET http://b.com/x HTTP/1.1\r\nHost: [::1%25lo]:80\r\nUser-Agent:\r\n\r\n", "User-Agent", "a\r\nb: c")
	f.Add("PUT //x//y HTTP/1.0\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length", "5")
	f.Add("HEAD /ü HTTP/1.1\r\nHost: a_b\r\nA: b\tc\r\n\r\n", "A\r\nB", "c")
	f.Fuzz(func(t *testing.T, asked, name, value string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(asked)))
		if err != nil {
			return
		}
		r.RequestURI, r.Close = "", false
		r.URL.Scheme, r.URL.Host = "http", "pod"
		for _, hop := range []string{"Connection", "Transfer-Encoding", "Trailer", "Upgrade"} {
			r.Header.Del(hop)
		}
		if name != "" {
			r.Header[name] = append(r.Header[name], value)
		}
		if _, said := r.Header["User-Agent"]; !said {
			r.Header["User-Agent"] = nil
		}
		beside := Field{"X-Beside", value}
		maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return strings.EqualFold(name, beside.Name) })
		data, ok := write(nil, r, []Field{beside})
		if !ok {
			return
		}
		r.Header[beside.Name] = []string{beside.Value}
		var library bytes.Buffer
		if err := r.Write(&library); err != nil {
			t.Fatalf("sent %q of what the library does not send: %v", data, err)
		}
		got, want := parsed(t, data), parsed(t, library.Bytes())
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want, as the library has it, %q", data, library.Bytes())
		}
	})
}

type said struct {
	Method, URI, Host string
	Header            http.Header
	Length            int64
	Coding            []string
}

// parsed is the one request that there is.
func parsed(t *testing.T, data []byte) said {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(data))
	r, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q is no request: %v", data, err)
	}
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		t.Fatalf("%q follows the request in %q", rest, data)
	}
	return said{r.Method, r.RequestURI, r.Host, r.Header, r.ContentLength, r.TransferEncoding}
}
