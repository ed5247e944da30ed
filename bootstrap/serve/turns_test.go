package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTurnsGoToWhoHasWaitedLongestForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := &turns{free: 1}
		began := time.Now()
		end := line.take(began)
		var served []int
		for _, since := range []int{3, 1, 2} {
			go func() {
				end := line.take(began.Add(time.Duration(since)))
				served = append(served, since)
				end()
				end()
			}()
		}
		synctest.Wait()
		assert.Empty(t, served, "the only turn is taken")
		end()
		synctest.Wait()
		assert.Equal(t, []int{1, 2, 3}, served)
		assert.Equal(t, 1, line.free, "a turn that is given back twice is still one")
		assert.Equal(t, began, time.Now(), "nobody waited for a clock")
	})
}

func TestATurnEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := &turns{free: 1}
		began := time.Now()
		slow := line.take(began)
		quick := line.take(began)
		assert.Equal(t, turnTime, time.Since(began))
		slow()
		assert.Equal(t, 0, line.free, "its turn had ended before")
		quick()
		assert.Equal(t, 1, line.free)
		time.Sleep(2 * turnTime)
		assert.Equal(t, 1, line.free)
	})
}
