"""An adversary: random problems, damaged files and disturbed processes, judged by an oracle of its own.

    python -m benchmarks.adversary problems --minutes 30 --seed 1 --jobs 1
    python -m benchmarks.adversary files --minutes 10 --seed 1
    python -m benchmarks.adversary processes --minutes 10 --seed 1

`problems` draws problems from the whole grammar of inputs and judges every answer in extended precision, with
formulas of its own; `files` damages what the command line reads; `processes` kills commands and takes their
surroundings away. What it finds is shrunk and printed as a script to paste. With --save the counts are kept
in benchmarks/results/adversary.json.
"""
