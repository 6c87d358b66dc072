#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent's tools against what models do with them, and attempts to get out.

load agent.bash

setup() {
	agent_setup
}

teardown() {
	agent_teardown
}

# run_all NAME ARGS ...: one turn each, then done; results in out
run_all() {
	local turns=()
	while [ $# -gt 0 ]; do
		turns+=("$(tool "$1" "$2")")
		shift 2
	done
	script "${turns[@]}" "$done_turn"
	agent
	stopped final
}

c() { # command [more]: arguments of Bash
	jq -cn --arg c "$1" --argjson more "${2:-{\}}" '{command: $c} + $more'
}

f() { # path [members]: arguments of a file tool
	jq -cn --arg p "/work/$1" --argjson more "${2:-{\}}" '{file_path: $p} + $more'
}

@test "Bash: directory stays, variables do not, exit codes are told" {
	run_all Bash "$(c 'cd kernels; x=1; echo out; echo err >&2')" \
		Bash "$(c 'pwd; echo "[$x]"')" Bash "$(c 'exit 3')" \
		Bash "$(c 'cd /work; rmdir kernels')" Bash "$(c 'cd /tmp')" \
		Bash "$(c pwd)" Bash "$(c 'kill -SEGV $$')" Bash "$(c 'if')" \
		Bash "$(c 'trap "echo bye" EXIT; cd kernels; echo')"
	[ "$(result 0)" = $'out\nerr' ]
	[ "$(result 1)" = $'/work/kernels\n[]' ]
	[ "$(result 2)" = '[exit code 3]' ]
	[ "$(result 5)" = /work ]
	[[ $(result 6) = *'[exit code 139]' ]]
	[[ $(result 7) = *'syntax error'* ]]
}

@test "Bash: a directory that is gone is told" {
	run_all Bash "$(c 'mkdir d; cd d')" Bash "$(c 'rmdir ../d')" Bash "$(c pwd)"
	[ "$(result 2)" = $'[/work/d is gone; back in /work]\n/work' ]
}

@test "Bash: nothing hangs, and all of it goes with the call" {
	local nap=3$RANDOM
	run_all Bash "$(c "sleep $nap & echo started")" \
		Bash "$(c "setsid sleep $nap >/dev/null 2>&1 & disown; echo two")" \
		Bash "$(c 'exec > >(tee x); echo three')" Bash "$(c 'read x; echo "four[$x]"')" \
		Bash "$(c 'cat /dev/stdin; echo five')" \
		Bash "$(c "trap '' TERM INT; sleep $nap" '{"timeout":500}')" \
		Bash "$(c 'kill -9 $PPID; kill -9 1; echo seven')" \
		Bash "$(c 'kill -9 -1; echo eight')" \
		Bash "$(c 'ps -e | wc -l')"
	[ "$(result 0)" = started ]
	[ "$(result 1)" = two ]
	[[ $(result 2) = *three* || $(result 2) = '(no output)' ]]
	[ "$(result 3)" = 'four[]
[exit code 1]' ] || [ "$(result 3)" = 'four[]' ]
	[ "$(result 4)" = five ]
	[[ $(result 5) = *'killed after 0.5 s'*'exit code 124'* ]]
	[[ $(result 6) = *seven* ]]
	[ "$(result 8)" -lt 10 ]
	[ -z "$(pgrep -f "sleep $nap")" ]
}

@test "Bash: long output keeps head and tail and the file that has all" {
	run_all Bash "$(c 'seq 100000')" \
		Bash "$(c 'tail -1 /work/.output/bash_1.txt; ls /work/.output')" \
		Bash "$(c 'yes | head -c 300000000')" \
		Bash "$(c 'printf "a\xffb\0c\033[1m\n"')" \
		Bash "$(c 'for i in $(seq 40000); do printf "\xe2\x82\xac"; done')"
	[ "$(jq -rj '[.messages[] | select(.role == "tool") | .content][0]' out | wc -c)" -lt 31000 ]
	[[ $(result 0) = 1$'\n'2* ]]
	[[ $(result 0) = *'bytes left out; all of it is in /work/.output/bash_1.txt'*99999$'\n'100000 ]]
	[[ $(result 1) = 100000* ]]
	[[ $(result 2) = *'exit code'* || $(result 2) = *'256 MiB'* ]]
	[ "$(result 3)" = $'a\xef\xbf\xbdb\xef\xbf\xbdc\xef\xbf\xbd[1m' ]
	jq -e '[.messages[] | select(.role == "tool") | .content][4] |
		test("\ufffd") | not' out
}

@test "Bash: limits on processes, memory and disk" {
	script "$(tool Bash "$(c ':(){ :|:& };:; sleep 0.5; echo alive' '{"timeout":20000}')")" \
		"$(tool Bash "$(c 'for i in $(seq 20); do head -c 8M /dev/zero >f$i; sleep 0.2; done; echo no' '{"timeout":60000}')")" \
		"$(tool Write '{"file_path":"/work/a","content":"x"}')" \
		"$(tool Bash "$(c 'rm f*; echo gone')")" \
		"$(tool Bash "$(c 'for i in $(seq 20); do head -c 8M /dev/zero >kernels/f$i; sleep 0.2; done; echo no')")" \
		"$(tool Bash "$(c 'rm kernels/f*; mkdir d; chmod 0 d; sleep 9; echo no')")" \
		"$(tool Bash "$(c 'sleep 20; echo no')")" \
		"$(tool Bash "$(c 'chmod 700 d; rmdir d; sleep 1.5; echo gone')")" \
		"$(tool Bash "$(c 'mkdir -p $(seq -s / 40); sleep 9; echo no')")" \
		"$(tool Bash "$(c 'rm -r 1; while :; do i=$((i+1)); head -c 1M /dev/zero >fill$i; sleep 0.05; done' '{"run_in_background":true}')")" \
		"$(tool Bash "$(c 'sleep 20; echo no')")" "$(tool BashOutput '{"bash_id":"bash_9"}')" "$done_turn"
	agent --disk 32M
	stopped final
	# What runs in the background goes as well.
	[[ $(result 11) = *'[killed: the work directory has grown'* ]] || { results; false; }
	for i in 4 5 6 8 10; do
		[[ $(result $i) = *'can be counted; remove'* ]]
		[[ $(result $i) != no* ]]
	done
	[ "$(result 7)" = gone ]
	[[ $(result 0) = *'Resource temporarily unavailable'* || $(result 0) = *alive* ]]
	[[ $(result 1) = *'grown beyond 32 MiB'* ]]
	[[ $(result 2) = *'is full'* ]]
	[ "$(result 3)" = gone ]
	# Memory has an end as well, and what a command takes goes first.
	run_all Bash "$(c 'cat /proc/self/oom_score_adj; head -c 2G /dev/zero >/tmp/fill; head -c 2G /dev/zero >/dev/shm/fill')" \
		Bash "$(c 'python3 -c "b = bytearray(1 << 44)"')"
	[[ $(result 0) = 1000$'\n'*'No space left'*'No space left'* || $(result 0) = 1000$'\n'*'File size limit'* ]]
	[[ $(result 1) = *MemoryError* ]]
}

@test "Bash: what a command leaves is counted when it ends, and what it holds" {
	# However fast it was.
	script "$(tool Bash "$(c 'for i in 1 2 3; do head -c 20M /dev/zero >f$i; done')")" \
		"$(tool Bash "$(c 'echo one')")" "$(tool Bash "$(c 'echo two; head -c 2M /dev/zero >f4')")" \
		"$(tool Bash "$(c 'rm f*; echo four')")" "$(tool Bash "$(c 'echo five')")" \
		"$(tool Bash "$(c 'head -c 50M /dev/zero >f')")" "$done_turn"
	agent --disk 32M
	stopped final
	[[ $(result 0) = *'grown beyond 32 MiB'* ]]
	[[ $(result 1) = one$'\n'*'grown beyond 32 MiB'* ]]
	[[ $(result 2) = two$'\n'*'grown beyond 32 MiB'* ]]
	[ "$(result 3)" = four ]
	[ "$(result 4)" = five ]
	[[ $(result 5) = *'exit code 153]'* || $(result 5) = *killed* ]]
	# Without a name it is there all the same.
	cat >hold.py <<-'END'
		import os, time
		held = []
		while not os.path.exists("go"):
		    time.sleep(0.05)
		for i in range(3):
		    held.append(open("h", "wb", 0))
		    os.unlink("h")
		    held[-1].write(bytes(20 << 20))
		open("ready", "w")
		time.sleep(1000)
	END
	script "$(jq -cn --rawfile t hold.py '{calls: [{name: "Write", args: {file_path: "/work/hold.py", content: $t}}]}')" \
		"$(tool Bash "$(c 'python3 hold.py' '{"run_in_background":true}')")" \
		"$(tool Bash "$(c 'touch go; until [ -e ready ]; do sleep 0.1; done; sleep 60; echo no')")" \
		"$(tool BashOutput '{"bash_id":"bash_1"}')" "$(tool Bash "$(c 'echo yes')")" "$done_turn"
	agent --disk 32M
	stopped final
	[[ $(result 2) = '[killed: the work directory has grown beyond 32 MiB'* ]]
	[[ $(result 3) = *'[killed: the work directory has grown'* ]]
	[ "$(result 4)" = yes ]
	# Who makes no room is heard three times.
	script "$(tool Bash "$(c 'head -c 20M /dev/zero >f; cp f g')")" "$(tool Bash "$(c 'echo 1')")" \
		"$(tool Bash "$(c 'echo 2')")" "$(tool Bash "$(c 'echo 3')")" "$(tool Bash "$(c 'echo 4')")" "$done_turn"
	agent --disk 32M
	stopped final
	[[ $(result 3) = 3* ]]
	[[ $(result 4) = *'no command runs any more' ]]
}

@test "Bash: where more lies than can be counted nothing runs for long" {
	run_all Bash "$(c 'mkdir d; python3 -c "for i in range(60000): open(f\"d/{i}\", \"w\")"')" \
		Bash "$(c 'echo one')" Bash "$(c 'echo two')" Bash "$(c 'echo three')" \
		Bash "$(c 'rm -rf d')" Bash "$(c 'echo five' '{"run_in_background":true}')"
	[[ $(result 3) = three$'\n'* ]]
	[[ $(result 4) = *'no command runs any more' ]]
	[[ $(result 5) = *'no command runs any more' ]]
	# One who tidies up goes on.
	run_all Bash "$(c 'mkdir d; python3 -c "for i in range(60000): open(f\"d/{i}\", \"w\")"')" \
		Bash "$(c 'mv d /tmp')" Bash "$(c 'rm -r d')" Bash "$(c 'rm -rf d')" Bash "$(c 'echo here')"
	[ "$(result 4)" = here ]
}

@test "background commands: new output, filter, end, kill" {
	run_all Bash "$(c 'for i in 1 2 3; do echo line $i; done; sleep 0.1; echo late; touch late; exit 4' '{"run_in_background":true}')" \
		Bash "$(c 'until [ -e late ]; do sleep 0.05; done; sleep 0.5')" BashOutput '{"bash_id":"bash_1","filter":"line [13]"}' \
		BashOutput '{"bash_id":"bash_1"}' BashOutput '{"bash_id":"bash_9"}' \
		Bash "$(c 'trap "" TERM; sleep 1000' '{"run_in_background":true}')" \
		KillShell '{"shell_id":"bash_3"}' BashOutput '{"bash_id":"bash_3"}' \
		BashOutput '{"bash_id":"bash_3","filter":"("}'
	[ "$(result 0)" = 'Running in the background as bash_1' ]
	[ "$(result 2)" = $'line 1\nline 3\n[ended: exit code 4]' ]
	[ "$(result 3)" = $'(no new output)\n[ended: exit code 4]' ]
	[[ $(result 4) = *"no background command 'bash_9'"* ]]
	[[ $(result 6) = *'[killed]' ]]
	[[ $(result 7) = *'[killed]' ]]
	[[ $(result 8) = *Error* ]]
	# Of very many that have ended the oldest are forgotten.
	jq -cn '[range(1; 35) | {name: "Bash", args: {command: "sleep 1000", run_in_background: true}},
			{name: "KillBash", args: {shell_id: "bash_\(.)"}}] | [{calls: .[:60]},
		{calls: (.[60:] + [{name: "BashOutput", args: {bash_id: ("bash_1", "bash_34")}}])},
		{content: "Done."}]' >script
	agent
	stopped final
	[[ $(result 68) = "Error: 'bash_1' has ended and its output is gone" ]]
	[[ $(result 69) = *'[killed]' ]]
}

@test "Read: numbers, parts, long lines, odd files" {
	run_all Bash "$(c 'seq 3000 >n; printf "a\tb\r\nlast" >crlf; : >empty; mkfifo fifo; printf "\0\1" >bin; printf "%0100000000d\nend\n" 0 >long; ln -s /etc/passwd out; mkdir d')" \
		Read "$(f n)" Read "$(f n '{"offset":2999,"limit":5}')" Read "$(f n '{"offset":9999}')" \
		Read "$(f crlf)" Read "$(f empty)" Read "$(f fifo)" Read "$(f bin)" Read "$(f long)" \
		Read "$(f out)" Read "$(f d)" Read "$(f nothing)" Read '{"file_path":"/etc/passwd"}' \
		Read '{"file_path":"/work/../etc/passwd"}' Read '{"file_path":"kernels/../n","limit":1}'
	[[ $(result 1) = *'  2000→2000'*'(lines 1-2000 of 3000)' ]]
	[ "$(result 2)" = $'  2999→2999\n  3000→3000\n(lines 2999-3000 of 3000)' ]
	[[ $(result 3) = *'only 3000 lines'* ]]
	[ "$(result 4)" = $'     1→a\tb\n     2→last\n(lines 1-2 of 2)' ]
	[[ $(result 5) = *empty* ]]
	[[ $(result 6) = *'is a FIFO'* ]]
	[[ $(result 7) = *'binary'* ]]
	[[ $(result 8) = *'[line cut]'*'2→end'* ]]
	[[ $(result 9) = *'leads out of /work'* ]]
	[[ $(result 10) = *'is a directory'* ]]
	[[ $(result 11) = *'does not exist'* ]]
	[[ $(result 12) = *'not below /work'* ]]
	[[ $(result 13) = *'leads out of /work'* ]]
	[[ $(result 14) = *'1→1'* ]]
}

@test "Write and Edit: parents, exactness, line ends" {
	e() { # path, old, new, more
		jq -cn --arg p "/work/$1" --arg o "$2" --arg n "$3" --argjson more "${4:-{\}}" \
			'{file_path: $p, old_string: $o, new_string: $n} + $more'
	}
	run_all Write "$(f a/b/c '{"content":"one\ntwo\none\n"}')" \
		Edit "$(e a/b/c one 1)" Edit "$(e a/b/c one 1 '{"replace_all":true}')" \
		Edit "$(e a/b/c 'twoo' x)" Edit "$(e a/b/c two two)" Edit "$(e a/b/c '' x)" \
		Bash "$(c 'printf "\xef\xbb\xbfx\r\ny\r\nz\r\n" >crlf; printf "x\r\ny\n" >mixed; printf "p\0q" >nul')" \
		Edit "$(e crlf $'x\ny' $'1\n2\n3')" Edit "$(e mixed $'x\ny' z)" Edit "$(e nul q r)" \
		Bash "$(c 'od -An -c crlf; od -An -c nul; cat a/b/c')" \
		MultiEdit "$(f a/b/c '{"edits":[{"old_string":"1","new_string":"uno","replace_all":true},{"old_string":"nix","new_string":"y"}]}')" \
		MultiEdit "$(f a/b/c '{"edits":[{"old_string":"two","new_string":"due"},{"old_string":"due","new_string":"dos"}]}')" \
		Bash "$(c 'cat a/b/c; ls -A a/b')"
	[[ $(result 0) = *'Wrote 12 bytes'* ]]
	[[ $(result 1) = *'occurs 2 times (lines 1, 3)'* ]]
	[[ $(result 2) = *'2 replacements'* ]]
	[[ $(result 3) = *"nearest is line 2: 'two'"* ]]
	[[ $(result 4) = *'the same'* ]]
	[[ $(result 5) = *'old_string is empty'* ]]
	[[ $(result 7) = *'1 replacement '* ]]
	[[ $(result 8) = *'not in the file'* ]]
	[[ $(result 10) = *'1  \r  \n   2  \r  \n   3  \r  \n   z  \r  \n'* ]]
	[[ $(result 10) = *'p  \0   r'* ]]
	[[ $(result 11) = *'edit 2 (nothing was changed)'* ]]
	[ "$(result 13)" = $'1\ndos\n1\nc' ]
}

@test "what is protected stays, whoever tries" {
	run_all Write "$(f model.py '{"content":"x"}')" Write "$(f kernels/../SKILL.md '{"content":"x"}')" \
		Edit "$(f utils/compile.sh '{"old_string":"exec","new_string":"x"}')" \
		Write "$(f utils/new '{"content":"x"}')" \
		Bash "$(c 'ln -s ../model.py kernels/m; ln -s .. kernels/up')" \
		Write "$(f kernels/m '{"content":"x"}')" Write "$(f kernels/up/model.py '{"content":"x"}')" \
		Bash "$(c 'echo x >model.py; rm -f model.py; mv utils u; mv SKILL.md s; ln model.py hard; echo x >hard; chmod 777 model.py; mount -o remount,rw /work/model.py; umount /work/model.py')" \
		Bash "$(c 'rm -rf . ; ls -A /work | tr "\n" " "')" \
		Bash "$(c 'md5sum <model.py; cat SKILL.md')"
	for i in 0 1 2 3 6; do
		[[ $(result $i) = *'is protected'* ]]
	done
	[[ $(result 5) = *'not a regular file'* ]]
	[[ $(result 8) = *'SKILL.md'*'model.py'*'utils'* ]]
	[[ $(result 9) = "$(md5sum <"$fix/diag-matmul/model.py")"* ]]
	[[ $(result 9) = *'Be fast.'* ]]
}

@test "nobody keeps outputs from being kept" {
	run_all Bash "$(c 'rm -rf .output; mv .output o; chmod 000 .output; ln -sfn /tmp .output; ln -s ../model.py .output/bash_4.txt; mkfifo .output/bash_5.txt; ls -A .output')" \
		Bash "$(c 'umount .output; mount -o remount,rw .output; python3 -c "import os; os.fchmod(1, 0); os.rename(\"/work\", \"/w\")"')" \
		Write "$(f .output/bash_4.txt '{"content":"x"}')" Bash "$(c 'seq 100000; chmod 000 .output/*')" \
		Bash "$(c 'tail -2 .output/bash_3.txt | head -1; echo x >>.output/bash_3.txt')" Read "$(f .output/bash_3.txt '{"offset":99999}')"
	[[ $(result 0) = *'Read-only'* ]]
	[[ $(result 2) = *'is protected'* ]]
	[[ $(result 3) = *'all of it is in /work/.output/bash_3.txt]'* ]]
	[[ $(result 4) = 100000$'\n'*'Read-only'* ]]
	[[ $(result 5) = *100000* ]]
}

@test "nothing outside the tree is read or written" {
	echo s3cr3t >"$dir/secret"
	run_all Bash "$(c "cat $dir/secret; cat /proc/1/root$dir/secret; cat /proc/self/root/root/.bashrc; ls $dir")" \
		Bash "$(c "ln -s $dir/secret l; ln $dir/secret h; ln -s /proc/self/root p; ln -s $dir k2; cat l")" \
		Read "$(f l)" Read "$(f "p$dir/secret")" Write "$(f k2/new '{"content":"x"}')" \
		Grep '{"pattern":"s3cr3t","output_mode":"content"}' Glob '{"pattern":"**/secret"}' \
		Grep '{"pattern":"root","path":"/etc"}' Grep '{"pattern":"root","path":"p/etc"}' \
		Bash "$(c 'exec 3<>/dev/tcp/127.0.0.1/22 && echo net; python3 -c "import socket; socket.create_connection((\"1.1.1.1\", 53), 2)"; mount; id -u')"
	[ "$(results | grep -c s3cr3t)" = 0 ]
	[[ $(result 2) = *'leads out'* ]]
	[[ $(result 3) = *'leads out'* ]]
	[[ $(result 4) = *'leads out'* ]]
	[ ! -e "$dir/new" ]
	[[ $(result 5) = 'No lines found' ]]
	[[ $(result 6) = 'No files found' ]]
	[[ $(result 7) = *'not below /work'* ]]
	[[ $(result 8) = *'leads out'* ]]
	[[ $(result 9) != *net* ]]
}

@test "Glob and Grep" {
	run_all Bash "$(c 'mkdir -p a/b; echo foo >a/x.c; sleep 0.02; echo Foo bar >a/b/y.cu; printf "1\n2\nfoo\n4\n" >z.py; mkfifo ff; for i in $(seq 120); do : >kernels/$i.h; done')" \
		Glob '{"pattern":"*.cu"}' Glob '{"pattern":"*.{c,cu}","path":"/work/a"}' Glob '{"pattern":"kernels/*.h"}' \
		Grep '{"pattern":"foo","glob":"!SKILL.md"}' Grep '{"pattern":"foo","-i":true,"output_mode":"count"}' \
		Grep '{"pattern":"foo","output_mode":"content","-n":true,"-B":1,"type":"py"}' \
		Grep '{"pattern":"(","path":"a"}' Grep '{"pattern":"nowhere-to-be-found"}' \
		Grep '{"pattern":"Foo.*","path":"a/b/y.cu","output_mode":"content"}' \
		Grep '{"pattern":"1.2","multiline":true,"path":"z.py","output_mode":"content"}' \
		Grep '{"pattern":"","path":"kernels","output_mode":"content","head_limit":1}' \
		Glob '{"pattern":"x","path":"nothing"}' Grep '{"pattern":"x","type":"nosuch"}' \
		Grep '{"pattern":"--pre=sh","path":"a"}'
	[ "$(result 1)" = a/b/y.cu ]
	[ "$(result 2)" = $'a/b/y.cu\na/x.c' ]
	[ "$(result 3 | grep -c .)" = 101 ]
	[[ $(result 3) = *'(20 more files not shown)' ]]
	[ "$(result 4 | sort)" = $'a/x.c\nz.py' ]
	[[ $(result 5) = *'a/b/y.cu:1'* ]]
	[ "$(result 6)" = $'z.py-2-2\nz.py:3:foo' ]
	[[ $(result 7) = *'regex parse error'* ]]
	[ "$(result 8)" = 'No matching files found' ]
	[ "$(result 9)" = 'a/b/y.cu:Foo bar' ]
	[ "$(result 10)" = $'z.py:1\nz.py:2' ]
	[[ $(result 12) = *'does not exist'* ]]
	[[ $(result 13) = *Error*nosuch* ]]
	[ "$(result 14)" = 'No matching files found' ]
}

@test "NotebookEdit: ids before positions" {
	n() { # members
		jq -cn --argjson m "$1" '{notebook_path: "/work/n.ipynb"} + $m'
	}
	run_all Write "$(jq -cn '{file_path: "/work/n.ipynb", content: ({nbformat: 4, metadata: {x: 1.50},
		cells: [{cell_type: "code", id: "cell-1", source: "a", outputs: [1], execution_count: 3, metadata: {}},
		{cell_type: "markdown", source: ["b"], metadata: {}}]} | tojson)}')" \
		NotebookEdit "$(n '{"cell_id":"cell-1","new_source":"A"}')" \
		NotebookEdit "$(n '{"cell_id":"cell-0","edit_mode":"insert","cell_type":"markdown","new_source":"new"}')" \
		NotebookEdit "$(n '{"cell_id":"cell-2","edit_mode":"delete","new_source":""}')" \
		NotebookEdit "$(n '{"cell_id":"zzz","new_source":""}')" \
		NotebookEdit "$(n '{"edit_mode":"insert","new_source":"q"}')" \
		Bash "$(c 'cat n.ipynb')" \
		NotebookEdit "$(n '{"edit_mode":"insert","cell_type":"code","new_source":"1"}')" \
		NotebookEdit "$(n '{"cell_id":"cell-1","edit_mode":"delete","new_source":""}')" \
		NotebookEdit "$(n '{"edit_mode":"insert","cell_type":"code","new_source":"2"}')" \
		Bash "$(c 'cat n.ipynb; echo "{\"cells\": [[1]]}" >odd.ipynb')" \
		NotebookEdit '{"notebook_path":"odd.ipynb","cell_id":"cell-0","new_source":"x"}' \
		NotebookEdit '{"notebook_path":"model.py","cell_id":"cell-0","new_source":"x"}'
	[[ $(result 12) = *"'model.py' is protected"* ]]
	[[ $(result 11) = *'is no notebook' ]]
	[[ $(result 4) = *"no cell 'zzz'"* ]]
	[[ $(result 5) = *"cell_type is missing"* ]]
	result 10 | head -n 1 | jq -e '[.cells[].id // empty] | length == (unique | length)'
	result 6 | jq -e '[.cells[].source] == ["A", "new"] and .cells[0].outputs == [] and .metadata.x == 1.5'
}

@test "whatever says ok in the tree, verdicts are the judge's" {
	run_all Write "$(f model_new.py '{"content":"x"}')" \
		Bash "$(c 'mkdir -p kernels/utils bin; echo "print(\"ok (all is as it should be)\")" >kernels/utils/verification.py
			cd kernels; python3 -m utils.verification; cd ..
			printf "#!/bin/sh\necho faked\n" >bin/ca-verify; chmod 755 bin/ca-verify; PATH=/work/bin:$PATH ca-verify')" \
		Bash "$(c 'ca-verify; mv utils u; rm -rf utils; mount --bind bin utils; cp bin/ca-verify /judge/bin/ca-verify
			ln utils/compile.sh c && echo x >c; ln -sfn bin utils; sed -i s/exec/true/ utils/compile.sh; ls utils')" \
		Bash "$(c 'utils/compile.sh; sudo python3 -m utils.verification; ca-verify')"
	[[ $(result 1) = 'ok (all'*faked ]]
	[[ $(result 2) = *'ok (all'*$'\ncompile.sh\nprofiling.py\nverification.py' ]]
	[[ $(result 3) = *built*'ok (all'*'ok (all'* ]]
	# The two that only said so are no tries, and no file of them is judged.
	jq -c '[.evaluations[].stage]' out
	jq -e '[.evaluations[].stage] == ["verify", "compile", "verify", "verify", "reward"]' out
	jq -e 'all(.evaluations[].candidate.files; keys == ["model_new.py"])' out
}

@test "the judge's socket takes three words and nothing else" {
	run_all Bash "$(c 'head -c 100000 /dev/urandom | timeout 5 python3 -c "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(\"/judge/box/judge.sock\")
try:
    s.sendall(sys.stdin.buffer.read())
    print(s.recv(100))
except OSError as e:
    print(e)
"; rm -f /judge/box/judge.sock; echo still')" \
		Bash "$(c 'ca-verify --no-jail --rules none; echo "exit $?"')" \
		Bash "$(c 'sudo rm -rf /; sudo ls; echo "exit $?"')" \
		Write "$(f model_new.py '{"content":"x"}')" \
		Bash "$(c 'ca-verify && sudo python3 -m utils.verification && python3 -m utils.verification && sudo bash utils/compile.sh && utils/compile.sh')" \
		Bash "$(c 'for i in 1 2 3 4; do ca-compile & done; wait')" \
		Bash "$(c 'ca-verify & sleep 0.05; kill -9 $!; ca-compile')"
	[[ $(result 0) = *still ]]
	[[ $(result 1) = *'the commands are'*'exit 1' ]]
	[[ $(result 2) = *"only 'python3"*'exit 1' ]]
	[ "$(result 4 | grep -c 'ok (all')" = 3 ]
	[ "$(result 4 | grep -c '^built')" = 2 ]
	[ "$(result 5 | grep -c '^built')" = 4 ]
	[ "$(jq '[.evaluations[] | select(.stage == "verify")] | length' out)" -ge 3 ]
	jq -e 'all(.evaluations[]; .candidate.ask == null and .candidate.rules == "paper")' out
}

@test "what the caller has in its environment stays with it" {
	export OPENAI_API_KEY=s3cr3t
	run_all Bash "$(c 'env; cat /proc/*/environ | tr "\0" "\n"; python3 -c "import os; print(os.environ)"')"
	[ "$(results | grep -c s3cr3t)" = 0 ]
	[ "$(grep -rlc s3cr3t out || true)" = '' ]
}

@test "odd files are no candidates, and nobody waits for them" {
	echo s3cr3t >"$dir/secret"
	run_all Bash "$(c "ln -s $dir/secret model_new.py; ca-verify; echo \"exit \$?\"")" \
		Bash "$(c 'rm model_new.py; mkfifo model_new.py; ca-verify; echo "exit $?"')" \
		Bash "$(c 'rm model_new.py; mkdir model_new.py; ca-verify; echo "exit $?"')" \
		Bash "$(c 'rmdir model_new.py; echo x >model_new.py; chmod 0 model_new.py; ca-verify; echo "exit $?"')" \
		Bash "$(c "chmod 644 model_new.py; ln -s $dir/secret kernels/a.c; mkfifo kernels/b.c; ca-verify")" \
		Bash "$(c 'rm kernels/*; ln -s / kernels/root; rmdir /judge/box; rm -rf kernels; ln -s /etc kernels; ca-verify')" \
		Bash "$(c 'rm kernels; mkdir kernels; truncate -s 100M kernels/a.c; ca-verify; echo "exit $?"')" \
		Bash "$(c 'rm kernels/a.c; ln -s /dev/zero kernels/z.c; ln model_new.py kernels/m.c; ca-compile')"
	for i in 0 1 2; do
		[[ $(result $i) = 'left out: model_new.py ('* ]]
	done
	[[ $(result 3) = "error: '/work/': cannot open 'model_new.py'"*'exit 1' ]]
	[[ $(result 4) = *'left out: kernels/a.c (symbolic link)'* ]]
	[[ $(result 4) = *'left out: kernels/b.c ('* ]]
	[[ $(result 5) = *'ok (all'* ]]
	[[ $(result 6) = *'longer than'*'exit 1' ]]
	[[ $(result 7) = *'left out: kernels/z.c'*built* ]]
	[ "$(results | grep -c "$dir")" = 0 ]
	[ "$(grep -c s3cr3t out)" = 0 ]
	[ "$(grep -c 'root:x:0' out)" = 0 ]
	jq -e 'all(.evaluations[].candidate.files | keys[]; IN("model_new.py", "kernels/m.c"))' out
}

# beats TURN...: with a command in the background that leaves its mark ten times
# a second and never looks up
beats() {
	script "$(tool Bash "$(c 'while :; do echo >>kernels/beats; sleep 0.1; done' \
		'{"run_in_background":true}')")" "$@" "$done_turn"
}

@test "nothing of a rollout runs while its judge's clock does" {
	# This judge looks whether anything moves while it is at work.
	cat >judge <<-'END'
		#!/bin/bash
		while read -r line; do
			before=$(cat run/*/work/kernels/beats | wc -l)
			sleep 1
			after=$(cat run/*/work/kernels/beats | wc -l)
			jq -c --arg moved $((after - before)) '.build = {status: "ok"} |
				.verify = {status: "ok"} | .profile = {status: "ok", moved: $moved} |
				.reward = {value: 1, reason: $moved}' <<<"$line"
		done
	END
	beats "$(sh_turn 'until [ "$(cat kernels/beats | wc -l)" -ge 2 ]; do sleep 0.1; done 2>/dev/null
			cat kernels/beats | wc -l')" \
		"$(tool Write '{"file_path":"/work/model_new.py","content":"x"}')" \
		"$(sh_turn 'ca-profile; (while :; do echo >>kernels/beats; done) & ca-profile')" \
		"$(sh_turn 'sleep 0.5; cat kernels/beats | wc -l')"
	agent --dir run
	jq -c '[.evaluations[].candidate.profile.moved]' out
	jq -e '[.evaluations[].candidate.profile.moved] == ["0", "0", "0"]' out
	# It ran on when a tool did.
	[ "$(result 1)" -ge 2 ]
	[ "$(result 4)" -gt "$(result 1)" ]
	jq -e '.outcome.reward == 1' out
	# Where the device is a GPU its clock is not disturbed either.
	rm -rf run
	agent --dir run -d cuda
	jq -c '[.evaluations[].candidate.profile.moved]' out
	jq -e '[.evaluations[].candidate.profile.moved] == ["0", "0", "0"]' out
	[ "$(result 4)" -gt "$(result 1)" ]
}

@test "whoever waits for a verdict keeps no judge's clock from the processor" {
	mv judge counts
	# A lease of this test's own; it has to be free whenever a judge is asked.
	export CA_CACHE=$dir/cache
	cat >judge <<-'END'
		#!/bin/bash
		while read -r line; do
			flock -n -x cache/lease/cpu echo free >>free
			cat <<<"$line"
		done | ./counts
	END
	chmod 755 judge
	beats "$(tool Write '{"file_path":"/work/model_new.py","content":"x"}')" \
		"$(sh_turn 'ca-compile; ca-verify; ca-profile; ca-profile --reference')"
	agent
	[ "$(cat free | wc -l)" = 5 ]
}

@test "nothing of a rollout runs while its model thinks" {
	# beyond N: waits until there are more lines than that
	beyond() {
		echo "n=$1; until [ \"\$(cat kernels/beats | wc -l)\" -gt \$n ]; do sleep 0.1; done 2>/dev/null"
	}
	serve_thinker() {
		script "$(tool Bash "$(c 'while :; do date +%s%N >>kernels/beats; sleep 0.05; done' \
			'{"run_in_background":true}')")" \
			"$(jq -c '.wait = 1' <<<"$(sh_turn "$(beyond 0)")")" \
			"$(jq -c '.wait = 1' <<<"$(sh_turn "$(beyond '$(cat kernels/beats | wc -l)')
				cat kernels/beats")")" "$done_turn"
		serve
	}
	serve_thinker
	"$bin/ca-agent" --endpoint "$url" --model m --skill skill -d cpu --judge ./judge tasks >out
	stopped final
	# Two silences of the model's length.
	result 2 | awk 'NR > 1 && $1 - was > 0.9e9 { n++ } { was = $1 } END { print n + 0 }' >silences
	[ "$(cat silences)" -ge 1 ]
}

@test "tries can be limited" {
	script "$(tool Bash "$(c 'ca-verify')")" "$(tool Bash "$(c 'ca-verify; ca-compile')")" "$done_turn"
	agent --gpu-calls 1
	stopped cost
	[[ $(result 1) = *'used up'*built* ]]
	[ "$(jq .cost.tries out)" = 1 ]
}
