package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

// notNamed is the reason of nodes that plugins (bits by index) did not name.
func (c *cycle) notNamed(narrowed uint32) *plugins.Reason {
	var names []string
	for i, p := range c.plugins.All {
		if narrowed&(1<<i) != 0 {
			names = append(names, p.Name())
		}
	}
	slices.Sort(names)
	return &plugins.Reason{Texts: []string{fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", names)}, Final: true}
}

// message says for people why the pod fits nowhere, in upstream's words:
//
//	0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.
func (u *unfit) message() string {
	if u.rejected != nil {
		return fmt.Sprintf("0/%d nodes are available: %s.", u.nodes, strings.Join(u.rejected.Texts, ", "))
	}
	byReason := map[*plugins.Reason]int{}
	for i := 0; i < len(u.refusals); { // neighbours often share a reason
		why, from := u.refusals[i].reason, i
		for i < len(u.refusals) && u.refusals[i].reason == why {
			i++
		}
		byReason[why] += i - from
	}
	if rest := u.nodes - len(u.refusals); rest > 0 && u.elsewhere != nil {
		byReason[u.elsewhere] += rest
	}
	return available(u.nodes, byReason)
}

func available(nodes int, byReason map[*plugins.Reason]int) string {
	byText := map[string]int{}
	for r, n := range byReason {
		for _, text := range r.Texts {
			byText[text] += n
		}
	}
	var parts []string
	for text, n := range byText {
		parts = append(parts, fmt.Sprintf("%d %s", n, text))
	}
	slices.Sort(parts)
	msg := fmt.Sprintf("0/%d nodes are available:", nodes)
	if len(parts) > 0 {
		msg += " " + strings.Join(parts, ", ") + "."
	}
	return msg
}

// maxEventMessage is the longest message that an event can hold.
const maxEventMessage = 1024

// truncate cuts a message for an event.
func truncate(msg string) string {
	const more = " ..."
	if len(msg) <= maxEventMessage {
		return msg
	}
	return msg[:maxEventMessage-len(more)] + more
}
