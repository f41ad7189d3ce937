package hook

// Kept is how many webhooks have connections kept for them.
func (c *Caller) Kept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.pools)
}
