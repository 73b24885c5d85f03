// The load generator: many ADS streams that ACK whatever comes, and count it. Obeys one command per line of stdin, and
// answers each with a line of JSON, or `error REASON`. Ends with stdin.
//
//	connect {PLAN}       open streams; answers when each has its first resources
//	expect VERSION [N]   from now on, note who has seen a resource of this version; only streams of class N are awaited
//	wait SECONDS         answers when all that were expected have
//	subscribe NAME       each stream asks for this name too
//	report               what came, by class
//	close                end all streams
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	fleet := &fleet{}
	for lines.Scan() {
		answer, err := obey(fleet, lines.Text())
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}

func obey(fleet *fleet, line string) (any, error) {
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "connect":
		plan := plan{}
		if err := json.Unmarshal([]byte(rest), &plan); err != nil {
			return nil, err
		}
		if err := fleet.connect(plan); err != nil {
			return nil, err
		}
	case "expect":
		version, class, of := strings.Cut(rest, " ")
		number, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			return nil, err
		}
		if !of {
			class = "-1"
		}
		chosen, err := strconv.Atoi(class)
		if err != nil {
			return nil, err
		}
		fleet.expect(number, chosen)
	case "wait":
		seconds, err := strconv.ParseFloat(rest, 64)
		if err != nil {
			return nil, err
		}
		if err := fleet.wait(time.Duration(seconds * float64(time.Second))); err != nil {
			return nil, err
		}
	case "subscribe":
		if err := fleet.subscribe(rest); err != nil {
			return nil, err
		}
	case "report":
	case "close":
		fleet.close()
	default:
		return nil, fmt.Errorf("no such command: %q", line)
	}
	return fleet.report(), fleet.failed()
}
