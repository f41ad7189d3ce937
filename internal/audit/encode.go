package audit

import (
	"strconv"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/wire"
)

// eventHead is what the JSON of an event by itself begins with.
const eventHead = `{"kind":"Event","apiVersion":"audit.k8s.io/v1",`

// appendJSON appends an event by itself, as a line.
func appendJSON(dst []byte, e *auditv1.Event) ([]byte, error) {
	at := len(dst) + len(eventHead) - 1
	out, err := wire.AppendJSON(append(dst, eventHead[:len(eventHead)-1]...), e)
	if err != nil {
		return dst, err
	}
	out[at] = ',' // the event's own bracket
	return append(out, '\n'), nil
}

// encodeList is events as a webhook gets them.
func encodeList(events []*auditv1.Event) ([]byte, error) {
	out := []byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`)
	for i, e := range events {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = wire.AppendJSON(out, e); err != nil {
			return nil, err
		}
	}
	return append(out, "]}\n"...), nil
}

// appendLegacy appends an event as a line of text.
func appendLegacy(dst []byte, e *auditv1.Event) []byte {
	name, groups, as, asGroups := "<none>", "<none>", "<self>", "<lookup>"
	if u := &e.User; u.Username != "" {
		name = u.Username
		if len(u.Groups) > 0 {
			groups = quoted(u.Groups)
		}
	}
	if u := e.ImpersonatedUser; u != nil {
		as = u.Username
		if u.Groups != nil {
			asGroups = quoted(u.Groups)
		}
	}
	namespace, response, ip := "<none>", "<deferred>", "<unknown>"
	if e.ObjectRef != nil && e.ObjectRef.Namespace != "" {
		namespace = e.ObjectRef.Namespace
	}
	if e.ResponseStatus != nil {
		response = strconv.Itoa(int(e.ResponseStatus.Code))
	}
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	dst = e.RequestReceivedTimestamp.AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, " AUDIT:"...)
	for _, f := range [][2]string{
		{" id=", string(e.AuditID)}, {" stage=", string(e.Stage)}, {" ip=", ip}, {" method=", e.Verb}, {" user=", name}, {" groups=", groups},
		{" as=", as}, {" asgroups=", asGroups}, {" user-agent=", e.UserAgent}, {" namespace=", namespace}, {" uri=", e.RequestURI}, {" response=", response},
	} {
		dst = strconv.AppendQuote(append(dst, f[0]...), f[1])
	}
	return append(dst, '\n')
}

// quoted is a list as text.
func quoted(list []string) string {
	var b strings.Builder
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(s))
	}
	return b.String()
}
