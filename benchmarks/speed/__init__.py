"""How fast the kit is, beside the libraries that people would otherwise use, on this machine, in one run.

::

    make bench                                    # small model S, every kind of work, three to five minutes
    make bench MODELS="S G"                       # with the 270M-sized model G: about a quarter of an hour, 14 GB
    python -m benchmarks.speed --only update round --turns 9 --out figures.jsonl
    python -m benchmarks.speed --only reward_fit marlhf --reward-batch 8    # ours; the peer keeps its default of 1

Machines are shared and noisy, so only ratios taken in one run count. Each side lives in a process of its own; the
processes take turns (ours, peer, ours, peer …) at exactly the same work, after a warm-up that is not counted. The
work is fixed, never the time: same weights, prompts, candidates, lengths (no EOS can be drawn), pairs, batch size,
float32. Before the first turn both sides tell numbers that only depend on the inputs (``check``), and the run stops
when these disagree. Peers are used as shipped, in a virtual environment that the first run makes in ``.bench-peers``
(``--peers DIR`` names another one).

=============  =========================================================  ==============================  ============
bench          work of one turn                                           peer                            unit
=============  =========================================================  ==============================  ============
collection     candidates of two agents, scored, pairs selected           CoMLRL 1.4.3 ``MADPOTrainer``   tokens/s
update         MADPO optimizer steps on 8 pairs, all sequences distinct   CoMLRL 1.4.3 ``MADPOTrainer``   pairs/s
round          collect against ``current``, store, train once on all      CoMLRL ``MADPOIterTrainer``     rounds/s
dpo            one agent, DPO steps on 8 pairs against a reference        TRL 1.16 ``DPOTrainer``         pairs/s
reward_fit     one pass of a reward model, a pair per step                CoMLRL 1.4.3 ``MARLHFTrainer``  pairs/s
policy_update  magrpo steps on 2 items × 4 joint responses                CoMLRL 1.4.3 ``MAGRPOTrainer``  responses/s
marlhf         collect, fit a reward model, one epoch of policy learning  CoMLRL 1.4.3 ``MARLHFTrainer``  runs/s
environment    reset and step of a task that costs nothing                none, 50 µs per joint response  responses/s
selection      pairs out of 1 000 scored candidates                       none, 0.2 s                     selections/s
replay         100 000 stored pairs drawn and read back                   none, constant memory           pairs/s
=============  =========================================================  ==============================  ============

S is a random Llama of 0.8 M parameters over 300 one-character tokens, prompts of 33 and completions of 28 tokens; G has
the shape of Gemma 3 270M with random weights, 262 144 tokens, prompts of 8 and completions of 32.

Standard output holds one JSON object per line and measurement, standard error the same in words. Fields:

``bench``, ``case``, ``model``
    What was measured; ``case`` tells variants of the benches without a peer apart.
``ours``, ``peer``
    ``rate`` in ``unit`` (from the median), ``seconds`` of one turn (``median``, ``min``, ``max``, ``turns``),
    ``cpu_seconds`` of all its threads, and ``phases``, the medians of its parts (``…_mib``: the part's peak memory).
``ratio``, ``ratio_range``
    Peer's seconds over ours, turn by turn: median, and the smallest and largest. Above 1 we are faster. ``cpu_ratio``
    compares processor time instead: less exact, but still telling when other programs keep the machine busy
    (``load`` under ``machine``: the load average when the measurement ended).
``target``, ``met``
    What is asked of ``ratio``, or of ``value`` where there is no peer (``value_unit`` says what that is).
``roof``
    GFLOP/s of a float32 product of two 2048² matrices, median over the run, measured between the turns: ``highest`` as
    torch computes by default, ``medium`` with ``torch.set_float32_matmul_precision("medium")``.
``share_of_roof``, ``peer_share_of_roof``
    Useful work per second over the higher of the two. Useful are 6 FLOP per parameter and token in training and 2 in
    sampling, each prompt once in sampling, the output head on completion positions only; ``useful_gflop`` per turn.
``peak_memory_mib``
    Peak resident memory of each side's process, libraries included: ``load`` until it is ready, ``work`` in the turns.
    ``memory_ratio``: ours over the peer's while working.
``shapes``, ``seeds``, ``machine``, ``versions``, ``settings``, ``check``, ``notes``
    What it takes to repeat and to judge the measurement; ``settings``: how our side tuned its process, and why.
"""
