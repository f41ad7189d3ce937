package answer

import (
	"net/http"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Bounds of warnings, in characters: proxies and clients take no headers of any size. If all are longer together, each is
// cut, and what comes after the limit is not told.
const (
	maxWarned  = 4 << 10
	maxWarning = 256
)

// Warnings sends what the client should know: once each, before the answer.
func (p *Reply) Warnings() {
	texts := p.Call.Warnings
	if text := p.Call.Resource.Deprecated(); text != "" {
		texts = append([]string{text}, texts...)
	}
	for _, text := range bounded(texts) {
		AddWarning(p.W, text)
	}
	p.Call.Warnings = nil
}

// bounded are warnings within the bounds.
func bounded(texts []string) []string {
	whole := 0
	for _, text := range texts {
		whole += utf8.RuneCountInString(text)
	}
	if whole <= maxWarned {
		return texts
	}
	var cut []string
	for told := 0; len(texts) > 0 && told < maxWarned; texts = texts[1:] {
		text := texts[0]
		if utf8.RuneCountInString(text) > maxWarning {
			text = string([]rune(text)[:maxWarning])
		}
		told += utf8.RuneCountInString(text)
		cut = append(cut, text)
	}
	return cut
}

// AddWarning adds a header Warning, unless the text cannot stand in one.
func AddWarning(w http.ResponseWriter, text string) {
	if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
		w.Header().Add("Warning", header)
	}
}
