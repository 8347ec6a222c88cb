"""The Python binding against libmotet.so, without PyTorch."""

import csv
import gc
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import motet
from motet import _library

SCHEDULES = Path(os.environ["TEST_DATA"]) / "schedules"


class Plans(unittest.TestCase):
    def test_published_table(self):
        # arXiv 2607.03229: makespans of a frozen encoder under three schedules, f=1, b=2.
        for ranks, microbatches, inline, prefix, optimum in ((4, 16, 70, 61, 58), (8, 32, 142, 121, 118)):
            for skeleton, expected in (("inline", inline), ("transpose(order=prefix)", prefix), ("transpose", optimum)):
                plan = motet.plan(f"<vision: {skeleton}, llm: 1f1b>", "vision: f=1; llm: f=1, b=2", ranks, microbatches)
                self.assertAlmostEqual(plan.makespan, expected)
                self.assertLessEqual(plan.bound, plan.makespan + 1e-9)

    def test_idle_is_what_busy_leaves(self):
        plan = motet.plan("<vision: transpose, llm: 1f1b>", "vision: f=2; llm: f=1, b=2", 4, 8, encode=[1, 0, 5])
        idle = 4 * plan.makespan - sum(plan.busy)
        self.assertAlmostEqual(sum(plan.idle.values()), idle)
        self.assertAlmostEqual(plan.idle_share, idle / (4 * plan.makespan))
        # 1, 0, 5 repeated over eight microbatches: five have data; all eight pass the llm's stages.
        kinds = [i for r in range(4) for i in plan.instructions(r) if i.kind == "FWD"]
        vision = {s for s, stage in enumerate(plan.program.stages) if plan.program.regions[stage.region].name == "vision"}
        self.assertEqual(sorted(i.microbatch for i in kinds if i.stage in vision), [0, 2, 3, 5, 6])
        self.assertEqual(sum(i.stage not in vision for i in kinds), 4 * 8)

    def test_times_follow_lists(self):
        plan = motet.plan("<llm: 1f1b>", "llm: f=1, b=2", 3, 5, alpha=0.25)
        for rank in range(3):
            clock = 0.0
            for instruction, (start, finish) in zip(plan.instructions(rank), plan.times(rank)):
                self.assertGreaterEqual(start, clock - 1e-9)
                clock = finish
                if instruction.kind in ("FWD", "BWD"):
                    self.assertAlmostEqual(finish - start, 1 if instruction.kind == "FWD" else 2)
            self.assertLessEqual(clock, plan.makespan + 1e-9)

    def test_split_replicas_trainable(self):
        plan = motet.plan("<llm: 1f1b>", "llm: f=1, b=2", 2, 2, replicas=2, split=[2, 0])
        self.assertEqual(plan.program.ranks, 4)
        self.assertEqual([s.layer_end - s.layer_begin for s in plan.program.stages], [2, 0])
        frozen = motet.plan("<a: 1f1b, b: 1f1b>", "a: f=1, b=2; b: f=1, b=2", 2, 2, trainable=["b"])
        self.assertEqual(set(frozen.program.layer_trainable), {False, True})
        with self.assertRaises(TypeError):
            motet.plan("<llm: 1f1b>", "llm: f=1, b=2", 2, 2, trainable="llm")

    def test_megatron_layout(self):
        plan = motet.plan_layout("Ett|(t|)*2tL", "t: f=1, b=2; L: f=1, b=2", 2, 4)
        self.assertEqual([s.layer_end - s.layer_begin for s in plan.program.stages], [3, 1, 1, 2])
        self.assertEqual([busy for busy in plan.busy], [4 * 3 * 3, 4 * 3 * 3])
        with self.assertRaises(motet.IllegalError) as caught:
            motet.plan_layout("Et|t|L", "t: f=1", 2, 4)
        self.assertEqual(caught.exception.rule, "layout")

    def test_illegal(self):
        with self.assertRaises(motet.IllegalError) as caught:
            motet.plan("<vision: transpose(order=ahead), llm: 1f1b>", "vision: f=1, b=2; llm: f=1, b=2", 4, 16)
        self.assertEqual((caught.exception.rule, caught.exception.key), ("ahead", "vision"))
        with self.assertRaises(motet.ParseError):
            motet.plan("<vision", "vision: f=1", 4, 16)
        with self.assertRaises(ValueError):
            motet.plan("<llm: 1f1b>", "llm: f=1, b=2", 0, 1)

    def test_memory_outlives_the_plan_object(self):
        program = motet.plan("<llm: 1f1b>", "llm: f=1, b=2", 2, 64).program
        digest = program.digest
        gc.collect()
        for _ in range(20):
            motet.plan("<llm: gpipe>", "llm: f=1, b=2", 2, 64)
        self.assertEqual(len(program.instructions(0)), program.rank_begin[1])
        self.assertEqual(f"{_library.library().motet_program_digest(program._pointer):016x}", digest)


class Files(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = Path(self.directory.name)

    def test_round_trip(self):
        plan = motet.plan("<vision: transpose, llm: 1f1b>", "vision: f=1, b=2; llm: f=1, b=2", 2, 3, bytes=64)
        plan.program.write(self.path / "plan.json")
        again = motet.read_program(self.path / "plan.json")
        self.assertEqual(again.digest, plan.program.digest)
        for table in ("stages", "regions", "edges", "buffers", "groups", "modules", "microbatches", "rank_begin"):
            self.assertEqual(getattr(again, table), getattr(plan.program, table))
        self.assertEqual(motet.verify(self.path / "plan.json").memory, plan.memory)

    def test_published_order_is_the_derived_one(self):
        plan = motet.plan("<llm: 1f1b(virtual=2)>", "llm: f=1, b=2", 4, 8)
        motet.write_pytorch_csv(plan.program, self.path / "order.csv")
        rows = [
            [[cell for cell in row if cell] for row in csv.reader(path.read_text().splitlines())]
            for path in (self.path / "order.csv", SCHEDULES / "vpp2_p4_m8.csv")
        ]
        self.assertEqual(rows[0], rows[1])
        transposed = motet.plan("<vision: transpose, llm: 1f1b>", "vision: f=1; llm: f=1, b=2", 2, 2)
        with self.assertRaises(motet.UnsupportedError):
            motet.write_pytorch_csv(transposed.program, self.path / "no.csv")

    def test_errors_name_the_place(self):
        (self.path / "bad.csv").write_text("0F0,0B0\n1F0,nonsense\n")
        with self.assertRaises(motet.ParseError) as caught:
            motet.read_pytorch_csv(self.path / "bad.csv")
        self.assertEqual((caught.exception.line, caught.exception.file), (2, str(self.path / "bad.csv")))
        with self.assertRaises(OSError):
            motet.read_program(self.path / "none.json")
        with self.assertRaises(motet.MotetError):
            motet.read_pytorch_csv(SCHEDULES / "zbv_p4_m8.csv", placement="loop")


class Proofs(unittest.TestCase):
    # Each rank sends before it receives what the other sends: PyTorch issue 172668.
    HANGS = (
        "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,"
        "2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,1RECV_B0,"
        "1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1\n"
    )

    def test_blocking_order(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "order.csv"
            path.write_text(self.HANGS)
            with self.assertRaises(motet.RefusedError) as caught:
                motet.verify(path)
            self.assertEqual(caught.exception.rule, "progress")
            self.assertEqual({rank for rank, _ in caught.exception.cycle}, {0, 1})
            told = motet.verify(path, blocking=False)
            self.assertTrue(told.blocking_hangs)

    def test_refusal_carries_the_place(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "order.csv"
            path.write_text("0F0,0B0,0F0\n1F0,1B0\n")
            with self.assertRaises(motet.RefusedError) as caught:
                motet.verify(path)
            self.assertEqual((caught.exception.rule, caught.exception.rank), ("completeness", 0))

    def test_golden_rows(self):
        rows = csv.DictReader((SCHEDULES / "golden.csv").read_text().splitlines())
        checked = 0
        for row in rows:
            if (row["p"], row["m"]) != ("4", "8") or {row["t_f"], row["t_b"], row["t_w"]} != {"1.0"}:
                continue
            path = SCHEDULES / f"{row['schedule']}_p4_m8.csv"
            if not path.exists():
                continue
            simulation = motet.simulate(path, "f=1, x=1, w=1")
            self.assertAlmostEqual(simulation.makespan, float(row["makespan"]), msg=row["schedule"])
            checked += 1
        self.assertGreaterEqual(checked, 6)


class Packing(unittest.TestCase):
    def test_value_by_the_formula(self):
        cost = motet.Cost(attention=1e-9, linear=1e-6, fixed=1e-4)
        pack = motet.pack([4000, 500, 500, 500, 500], 8, 1000, cost)
        self.assertLessEqual(pack.lower_bound, pack.value * (1 + 1e-12))
        for group in pack.microbatches[0]:
            tokens = sum([4000, 500, 500, 500, 500][s] for s in group.sequences)
            area = sum(0.5 * [4000, 500, 500, 500, 500][s] ** 2 for s in group.sequences)
            degree = len(group.ranks)
            self.assertEqual(tokens, group.tokens)
            self.assertLessEqual(tokens, 1000 * degree)
            self.assertAlmostEqual(group.seconds, 1e-4 + 1e-6 * tokens / degree + 1e-9 * area / degree)
        self.assertAlmostEqual(pack.value, max(g.seconds for g in pack.microbatches[0]))
        taken = sorted(s for group in pack.microbatches[0] for s in group.sequences)
        self.assertEqual(taken, [0, 1, 2, 3, 4])
        ranks = sorted(r for group in pack.microbatches[0] for r in group.ranks)
        self.assertEqual(ranks, sorted(set(ranks)))

    def test_limits(self):
        packer = motet.Packer(4, 100, motet.Cost(attention=1.0), degrees=[1, 2], batch="auto")
        self.assertEqual(packer.longest, 200)
        with self.assertRaises(motet.IllegalError):
            packer.plan([201])
        self.assertGreater(len(packer.plan([200] * 5).microbatches), 1)
        with self.assertRaises(ValueError):
            motet.Packer(4, 100, motet.Cost(attention=1.0), planner="static")


class Sampling(unittest.TestCase):
    LENGTHS = [100, 350, 20, 60, 90, 380, 10, 10, 200, 150, 40]

    def samplers(self, **options):
        cost = motet.Cost(attention=1e-9, linear=1e-6)
        return [
            motet.PackSampler(self.LENGTHS, motet.Packer(4, 100, cost, batch="auto"), 4, rank, **options)
            for rank in range(4)
        ]

    def test_every_sample_once_and_groups_agree(self):
        walks = [list(sampler.assignments()) for sampler in self.samplers(seed=3)]
        self.assertEqual(len({len(walk) for walk in walks}), 1)
        taken = []
        for row in zip(*walks):
            self.assertEqual(len({(a.step, a.microbatch) for a in row}), 1)
            for rank, assignment in enumerate(row):
                if assignment.group is None:
                    self.assertEqual(assignment.samples, ())
                    continue
                self.assertIn(rank, assignment.group.ranks)
                self.assertLessEqual(sum(self.LENGTHS[i] for i in assignment.samples), 100 * len(assignment.group.ranks))
                for other in assignment.group.ranks:
                    self.assertEqual(row[other].samples, assignment.samples)
                if rank == assignment.group.ranks[0]:
                    taken += assignment.samples
        self.assertEqual(sorted(taken), list(range(len(self.LENGTHS))))

    def test_epochs(self):
        first, second = self.samplers(seed=3)[0], self.samplers(seed=3)[0]
        self.assertEqual(list(first), list(second))
        self.assertEqual(len(first), len(list(first)))
        second.set_epoch(1)
        self.assertNotEqual(list(first), list(second))

    def test_what_has_no_room_waits(self):
        cost = motet.Cost(attention=1e-9)
        sampler = motet.PackSampler([400] * 3 + [10], motet.Packer(4, 100, cost), 4, 0, shuffle=False)
        walk = list(sampler.assignments())
        self.assertEqual(sorted(i for a in walk for i in a.samples if a.group.ranks[0] == 0), [0, 1, 2, 3])
        self.assertEqual(max(a.step for a in walk), 3)


class Mirrors(unittest.TestCase):
    def test_structs_are_the_headers(self):
        compiler = os.environ.get("CC")
        if not compiler:
            self.skipTest("no compiler in CC")
        lines, wanted = [], []
        for name, mirror in _library.MIRRORS.items():
            lines.append(f'printf("%zu\\n", sizeof({name}));')
            wanted.append((f"sizeof {name}", _library.ctypes.sizeof(mirror)))
            for field, *_ in mirror._fields_:
                member = field.rstrip("_")
                lines.append(f'printf("%zu %zu\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));')
                part = getattr(mirror, field)
                wanted.append((f"{name}.{member}", (part.offset, part.size)))
        source = "#include <motet/motet.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
        source += "\n".join(lines) + "\nreturn 0; }\n"
        include = Path(__file__).resolve().parents[2] / "include"
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "layout"
            (Path(directory) / "layout.c").write_text(source)
            subprocess.run([compiler, f"-I{include}", f"{program}.c", "-o", str(program)], check=True)
            printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
        self.assertEqual(len(printed), len(wanted))
        for line, (what, value) in zip(printed, wanted):
            numbers = tuple(int(word) for word in line.split())
            self.assertEqual(numbers if len(numbers) > 1 else numbers[0], value, what)

    def test_names_are_the_librarys(self):
        library = _library.library()
        for number, name in enumerate(motet.program.KINDS):
            self.assertEqual(library.motet_instruction_name(number).decode(), name)
        self.assertIsNone(library.motet_instruction_name(len(motet.program.KINDS)))

    def test_a_missing_library_says_where_it_was_sought(self):
        environment = {**os.environ, "MOTET_LIBRARY": "/nowhere/libmotet.so"}
        run = subprocess.run(
            [sys.executable, "-c", "import motet; motet.plan('<a: 1f1b>', 'a: f=1', 1, 1)"],
            env=environment, capture_output=True, text=True,
        )
        self.assertIn("/nowhere/libmotet.so", run.stderr)


if __name__ == "__main__":
    unittest.main()
