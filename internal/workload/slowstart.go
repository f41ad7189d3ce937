package workload

// SlowStart calls do n times in growing batches (1, 2, 4 ...) that stop at the
// first batch with an error: a request that cannot succeed is not made a
// thousand times. It returns how many calls succeeded and the first error.
func SlowStart(n int, do func() error) (int, error) {
	done := 0
	for batch := 1; done < n; batch *= 2 {
		var failed error
		for range min(batch, n-done) {
			if err := do(); err != nil {
				failed = err
				break
			}
			done++
		}
		if failed != nil {
			return done, failed
		}
	}
	return done, nil
}
