package openapi

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/resource"
)

// Service serves /openapi/v2 and /openapi/v3 for a fixed set of resources. It
// may be used concurrently.
type Service struct {
	version string
	memo    *memo
	defs    []*resource.Def
	on      func(schema.GroupVersion) bool
	others  []Other
	layout  func() *layout // made when somebody asks, and not each time that a kind comes or goes
}

// layout is what there are documents of.
type layout struct {
	kinds map[schema.GroupVersion][]kind
	marks marks
	roots []root
	names []string // of the OpenAPI 3 documents
	// hashes tell apart what documents are made from, and so documents, by the document's name.
	hashes map[string]string
}

// swaggerName is the name of the OpenAPI 2 document beside those of version 3.
const swaggerName = "/openapi/v2"

// New returns the service for defs; version is the server's. on says whether a
// group-version is served. before, if there was one, is the service in whose place it comes: what has not changed
// is not made again.
func New(before *Service, defs []*resource.Def, version string, on func(schema.GroupVersion) bool) *Service {
	s := &Service{version: version, memo: newMemo(), defs: defs}
	if before != nil {
		s.memo = before.memo
	}
	return s.serving(nil, on)
}

// serving is the service for the group-versions that are on, and those of others.
func (s *Service) serving(others []Other, on func(schema.GroupVersion) bool) *Service {
	n := &Service{version: s.version, memo: s.memo, defs: s.defs, on: on, others: others}
	n.layout = sync.OnceValue(n.lay)
	return n
}

// lay finds out what there are documents of.
func (s *Service) lay() *layout {
	l := &layout{kinds: served(s.defs), hashes: map[string]string{}}
	l.marks = newMarks(l.kinds)
	maps.DeleteFunc(l.kinds, func(gv schema.GroupVersion, _ []kind) bool { return !s.on(gv) })
	gvs := l.groupVersions()
	l.roots = roots(gvs)
	for i := range l.roots {
		name := l.roots[i].document()
		l.names = append(l.names, name)
		l.hashes[name] = s.version
	}
	var every strings.Builder
	for _, gv := range gvs {
		from := s.version + source(l.kinds[gv])
		l.hashes[nameOf(gv)] = from
		fmt.Fprintln(&every, gv, from)
	}
	for _, o := range s.others {
		fmt.Fprintln(&every, o.GroupVersion, len(o.Part), string(o.Part))
	}
	l.hashes[swaggerName] = every.String()
	for name, from := range l.hashes {
		l.hashes[name] = hashOf(name, from)
	}
	s.memo.retain(l.hashes)
	return l
}

// groupVersions are those that there are documents of, in the order of their paths.
func (l *layout) groupVersions() []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(l.kinds), func(a, b schema.GroupVersion) int { return strings.Compare(base(a), base(b)) })
}

// nameOf is the name of a group-version's document.
func nameOf(gv schema.GroupVersion) string { return strings.TrimPrefix(base(gv), "/") }

// source tells apart kinds that documents differ by.
func source(kinds []kind) string {
	var b strings.Builder
	for i := range kinds {
		k := &kinds[i]
		fmt.Fprint(&b, " ", k.gvk.Kind, len(k.subs))
		if k.live != nil {
			fmt.Fprint(&b, k.live.ID, k.def.Dynamic.ID)
		}
	}
	return b.String()
}

// ServeHTTP answers /openapi/v2, /openapi/v3 and the paths below the latter.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		s.serve(w, r, swaggerName)
	case path == "/openapi/v3":
		s.index(w, r)
	default:
		s.serve(w, r, strings.TrimPrefix(path, "/openapi/v3/"))
	}
}

// index lists the OpenAPI 3 documents. Their addresses hold their hash, so that
// clients may keep them for ever.
func (s *Service) index(w http.ResponseWriter, r *http.Request) {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]entry{}
	l := s.layout()
	for _, name := range l.names {
		paths[name] = entry{"/openapi/v3/" + name + "?hash=" + l.hashes[name]}
	}
	data, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !known(w, r, hashOf("index", string(data))) {
		// An error means that the client has gone.
		_, _ = w.Write(data)
	}
}

// known says in the answer which document it is, and ends it if the client has that.
func known(w http.ResponseWriter, r *http.Request, hash string) bool {
	etag := strconv.Quote(hash)
	w.Header().Set("Etag", etag)
	if r.Header.Get("If-None-Match") != etag {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

func refuse(w http.ResponseWriter, err error) {
	http.Error(w, "make OpenAPI document: "+err.Error(), http.StatusInternalServerError)
}

// Media types of documents.
const (
	asJSON = "application/json"
	proto2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	proto3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// serve answers with a document, as the client likes it best.
func (s *Service) serve(w http.ResponseWriter, r *http.Request, name string) {
	if s.layout().hashes[name] == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	mediaType := accepted(r.Header.Get("Accept"), name == swaggerName)
	if mediaType == "" {
		http.Error(w, "OpenAPI documents come as application/json or "+proto3, http.StatusNotAcceptable)
		return
	}
	hash := s.layout().hashes[name]
	if asked := r.URL.Query().Get("hash"); asked != "" && name != swaggerName {
		if asked != hash {
			http.Redirect(w, r, "/openapi/v3/"+name+"?hash="+hash, http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	w.Header().Set("Content-Type", mediaType)
	if known(w, r, hash) {
		return
	}
	data, err := s.document(name, mediaType)
	if err != nil {
		refuse(w, err)
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(data)
		return
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		refuse(w, err)
		return
	}
	_, _ = io.Copy(w, z) // an error means that the client has gone
}

// accepted is the media type that a document is sent as; empty: there is none that would do.
func accepted(accept string, swagger bool) string {
	protobuf, old := proto3, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	if swagger {
		protobuf, old = proto2, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	}
	type clause struct {
		name    string
		quality float64
	}
	var clauses []clause
	for part := range strings.SplitSeq(cmp.Or(accept, "*/*"), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		c := clause{strings.TrimSpace(name), 1}
		for p := range strings.SplitSeq(parameters, ";") {
			if q, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
				c.quality, _ = strconv.ParseFloat(q, 64) // what is no number is the least wanted
			}
		}
		clauses = append(clauses, c)
	}
	slices.SortStableFunc(clauses, func(a, b clause) int { return cmp.Compare(b.quality, a.quality) })
	for _, c := range clauses {
		switch c.name {
		case asJSON, "*/*", "application/*":
			return asJSON
		case protobuf, old:
			return protobuf
		}
	}
	return ""
}

// document makes or finds a document. It is compressed.
func (s *Service) document(name, mediaType string) ([]byte, error) {
	e := s.memo.entry(name)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ofLocked(s.layout().hashes[name])
	e.usedLocked()
	if data := e.mu.packed[mediaType]; data != nil {
		return data, nil
	}
	err := e.keepLocked(mediaType, func(w io.Writer) error { return s.write(w, name, mediaType) })
	return e.mu.packed[mediaType], err
}

// write makes a document.
func (s *Service) write(w io.Writer, name, mediaType string) error {
	all, err := s.memo.models()
	if err != nil {
		return err
	}
	l := s.layout()
	info := &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: s.version}}
	if name != swaggerName {
		doc, err := l.document3(name, newSchemas(3, all, l.marks), info)
		if err == nil {
			err = doc.write(w, mediaType)
		}
		return err
	}
	var kinds []kind
	for _, gv := range l.groupVersions() {
		kinds = append(kinds, l.kinds[gv]...)
	}
	doc, err := document2(newSchemas(2, all, l.marks), kinds, l.roots, info)
	if err != nil {
		return err
	}
	for _, o := range s.others {
		if o.Part == nil {
			continue
		}
		if err := doc.merge(o); err != nil {
			return err
		}
	}
	if mediaType == proto2 {
		return doc.writeProto(w)
	}
	return doc.writeJSON(w)
}

// document3 makes a document of OpenAPI 3.
func (l *layout) document3(name string, s *schemas, info *spec.Info) (*document, error) {
	var kinds []kind
	for gv, list := range l.kinds {
		if nameOf(gv) == name {
			kinds = list
		}
	}
	i := slices.IndexFunc(l.roots, func(r root) bool { return r.document() == name })
	return document3(s, kinds, &l.roots[i], info)
}
