#!/usr/bin/env python3
"""Writes tests/data/video/: small videos, made by PyAV (from PyPI, with FFmpeg inside), and what transformers' video
processor of InternVL makes of them (transformers and torchvision from PyPI).

    colours.mkv   lossless RGB, 9 frames             waves.mp4   H.264 with B-frames, BT.709, 37 frames, a sound track, the index in front
    waves.webm    VP9, 20 frames, count not stated   waves.avi   MPEG-4, 12 frames
    moving.gif    5 frames                           sound.mp4   no video stream
    fragments.mp4 the pictures of waves.mp4 again, in fragments without an index

frames.json: frames of each, and for numbers of samples the frames that sample_frames takes. pixels.safetensors: for each
video 4 sampled frames through the processor at 14 x 14 pixels, (4, 3, 14, 14).
"""
import json
import pathlib

import av
import numpy
import torch
from safetensors.torch import save_file
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.video_utils import VideoMetadata

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "video"
SIDE, PARTS = 14, 4
processor = InternVLVideoProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[0.485, 0.456, 0.406],
                                   image_std=[0.229, 0.224, 0.225])


def draw(frame, count, width, height):
    """Smooth colours that differ from frame to frame, without sharp edges."""
    y, x = numpy.mgrid[0:height, 0:width]
    phase = 2 * numpy.pi * frame / count
    waves = [numpy.sin(2 * numpy.pi * x / width + phase), numpy.cos(2 * numpy.pi * y / height - phase),
             numpy.sin(2 * numpy.pi * (x / width + y / height) + 2 * phase)]
    return numpy.stack([numpy.clip(128 + 100 * wave, 0, 255) for wave in waves], -1).astype(numpy.uint8)


def write(name, codec, pixel_format, count, width, height, sound=False, options=None, matrix=None):
    with av.open(str(ROOT / name), "w", options={"movflags": "faststart"} if name.endswith("mp4") else {}) as out:
        stream = out.add_stream(codec, rate=10, options=options or {})
        stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
        if matrix is not None:
            stream.codec_context.colorspace = matrix
        tone = out.add_stream("aac", rate=8000) if sound else None
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(draw(i, count, width, height), format="rgb24")
            frame = frame.reformat(format=pixel_format, dst_colorspace=matrix)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
        if tone is not None:
            samples = av.AudioFrame.from_ndarray(numpy.zeros((1, 8000), dtype=numpy.float32), format="fltp", layout="mono")
            samples.rate = 8000
            out.mux(tone.encode(samples))
            out.mux(tone.encode())


def write_sound(name):
    with av.open(str(ROOT / name), "w") as out:
        tone = out.add_stream("aac", rate=8000)
        samples = av.AudioFrame.from_ndarray(numpy.zeros((1, 1024), dtype=numpy.float32), format="fltp", layout="mono")
        samples.rate = 8000
        out.mux(tone.encode(samples))
        out.mux(tone.encode())


def write_fragments(name, source):
    with av.open(str(ROOT / source)) as whole, av.open(str(ROOT / name), "w", options={"movflags": "frag_keyframe+empty_moov"}) as out:
        stream = out.add_stream_from_template(whole.streams.video[0])
        for packet in whole.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)


def decode(name):
    with av.open(str(ROOT / name)) as video:
        return [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]


def sample(total, parts):
    return processor.sample_frames(VideoMetadata(total_num_frames=total, fps=10), num_frames=parts).tolist()


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    write("colours.mkv", "ffv1", "bgr0", 9, 32, 20)
    write("waves.mp4", "libx264", "yuv420p", 37, 48, 36, sound=True, options={"bf": "2", "crf": "10", "g": "12"},
          matrix=av.video.reformatter.Colorspace.ITU709)
    write_fragments("fragments.mp4", "waves.mp4")
    write("waves.webm", "libvpx-vp9", "yuv420p", 20, 40, 40, options={"crf": "10", "b": "200k"})
    write("waves.avi", "mpeg4", "yuv420p", 12, 64, 48, options={"qmin": "1", "qmax": "3"})
    write("moving.gif", "gif", "rgb8", 5, 30, 30)
    write_sound("sound.mp4")
    counts, pixels = {}, {}
    for name in ("colours.mkv", "waves.mp4", "waves.webm", "waves.avi", "moving.gif"):
        frames = decode(name)
        counts[name] = len(frames)
        chosen = torch.stack([torch.from_numpy(frames[i]).permute(2, 0, 1) for i in sample(len(frames), PARTS)])
        pixels[name] = processor(videos=[chosen], return_tensors="pt")["pixel_values_videos"][0].float().contiguous()
        print(name, len(frames), tuple(frames[0].shape), sample(len(frames), PARTS), (ROOT / name).stat().st_size)
    samples = [[total, parts, sample(total, parts)] for total in (1, 2, 3, 7, 8, 9, 24, 37, 100, 301, 1800, 54321)
               for parts in (1, 2, 3, 4, 7, 8, 12, 16, 32) if parts <= total]
    (ROOT / "frames.json").write_text(json.dumps({"counts": counts, "samples": samples}, separators=(",", ":")) + "\n")
    save_file(pixels, ROOT / "pixels.safetensors")


if __name__ == "__main__":
    main()
