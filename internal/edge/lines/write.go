package lines

import (
	"net/http"
	"net/textproto"

	"golang.org/x/net/http/httpguts"
)

// write appends a request as it is sent, with more than its header has; ok is false if it is none for this package (L1).
func write(to []byte, r *http.Request, more []Field) (_ []byte, ok bool) {
	if !usual(r) {
		return to, false
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	uri := r.URL.RequestURI()
	if host == "" || !visible(host) || !httpguts.ValidHostHeader(host) || uri == "" || uri[0] != '/' || !visible(uri) {
		return to, false
	}
	to = append(to, r.Method...)
	to = append(to, ' ')
	to = append(to, uri...)
	to = append(to, " HTTP/1.1\r\nHost: "...)
	to = append(to, host...)
	to = append(to, "\r\n"...)
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		to = append(to, "Content-Length: 0\r\n"...)
	}
	for name, values := range r.Header {
		switch name {
		case "Host", "Content-Length":
			continue // as above
		case "User-Agent":
			if len(values) > 1 {
				values = values[:1]
			}
			if len(values) == 1 && values[0] == "" {
				continue
			}
		case "Connection", "Upgrade", "Expect", "Trailer", "Transfer-Encoding":
			return to, false
		}
		for _, v := range values {
			if to, ok = field(to, name, v); !ok {
				return to, false
			}
		}
	}
	for _, f := range more {
		if to, ok = field(to, f.Name, f.Value); !ok {
			return to, false
		}
	}
	return append(to, "\r\n"...), true
}

// field appends a header; ok is false if it would not be one.
func field(to []byte, name, value string) (_ []byte, ok bool) {
	if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return to, false
	}
	to = append(to, name...)
	to = append(to, ": "...)
	to = append(to, textproto.TrimString(value)...)
	return append(to, "\r\n"...), true
}

// usual says that a request has no body, and nothing that this package does not know.
func usual(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody || r.ContentLength != 0 || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || r.Close {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return true
	}
	return false
}

// visible says that a text is of ASCII without blanks.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// harmless says that a request may be sent twice.
func harmless(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}
