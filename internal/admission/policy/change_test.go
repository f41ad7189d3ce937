package policy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestPoliciesChangeWhileOthersWrite(t *testing.T) {
	in(t, func(c *cluster) {
		docs := validating("p", `validations: [{expression: "object.data.a != 'bad'", message: first}]`, deny)
		c.make(docs...)
		var mu sync.Mutex
		said := map[string]int{}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 50 {
					_, err := c.send("create", "", configMap(fmt.Sprintf("m%d-%d", i, n), "bad"))
					mu.Lock()
					if err == nil {
						said[""]++
					} else {
						said[err.Error()[strings.LastIndex(err.Error(), " ")+1:]]++
					}
					mu.Unlock()
				}
			})
		}
		for n := range 20 {
			message := "first"
			if n%2 == 0 {
				message = "second"
			}
			if err := c.replace(strings.Replace(docs[0], "message: first", "message: "+message, 1)); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		if said[""] > 0 || said["first"]+said["second"] != 400 {
			t.Errorf("got %v, want each of 400 writes refused in one of the two words", said)
		}
		// What is in force follows at once, also when it is gone and made again.
		binding := fmt.Sprintf("{apiVersion: %s, kind: ValidatingAdmissionPolicyBinding, metadata: {name: p}}", group)
		c.passes("delete", binding)
		c.passes("create", configMap("free", "bad"))
		c.make(docs[1])
		synctest.Wait()
		if _, err := c.send("create", "", configMap("again", "bad")); err == nil {
			t.Error("the binding that was made again does nothing")
		}
	})
}
