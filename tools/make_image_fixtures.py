#!/usr/bin/env python3
"""Writes tests/data/image/ with Pillow, numpy, transformers and safetensors (PyPI).

    pictures/NAME.EXT + NAME.ppm   a picture of each kind, and what Pillow decodes of it, on white
    resize_*.ppm                   a source and Pillow's bicubic resizes of it
    tilings.csv                    grids chosen by transformers' GotOcr2 processor, which InternVL-HF uses
    tiles.safetensors              tiles of the source with thumbnail, by Pillow and numpy
"""
import pathlib
import random
import sys

import numpy
from PIL import Image, ImageDraw
from safetensors.numpy import save_file
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/image")
pictures = target / "pictures"
pictures.mkdir(parents=True, exist_ok=True)


def draw(width, height, mode="RGB"):
    image = Image.new("RGBA", (width, height))
    for y in range(height):
        for x in range(width):
            image.putpixel((x, y), (x * 255 // width, y * 255 // height, (x * y) % 256, 255))
    pen = ImageDraw.Draw(image)
    pen.ellipse((width // 4, height // 4, width * 3 // 4, height * 3 // 4), fill=(250, 40, 30, 128), outline=(0, 0, 0, 255))
    pen.rectangle((0, 0, width // 6, height // 6), fill=(0, 0, 0, 0))
    return image if mode == "RGBA" else image.convert(mode)


def on_white(image):
    # Palettes and grey levels with a transparent entry go through RGBA too.
    rgba = numpy.asarray(image.convert("RGBA"), dtype=numpy.int64)
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    return Image.fromarray(((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(numpy.uint8), "RGB")


def save(name, image, **options):
    path = pictures / name
    image.save(path, **options)
    with Image.open(path) as opened:
        on_white(opened).save(pictures / (name.rsplit(".", 1)[0] + ".ppm"))


save("rgb.png", draw(40, 30))
save("rgba.png", draw(33, 21, "RGBA"))
save("grey.png", draw(31, 20, "L"))
save("grey_alpha.png", draw(31, 20, "LA"))
save("bits.png", draw(31, 20, "1"))
save("palette.png", draw(31, 20).quantize(16))
transparent = draw(31, 20).quantize(16)
save("palette_alpha.png", transparent, transparency=3)
save("colour_key.png", draw(31, 20), transparency=(250, 40, 30))
save("baseline.jpg", draw(64, 48), quality=95, subsampling=0)
save("progressive.jpg", draw(64, 48), quality=95, subsampling=0, progressive=True)
save("halved.jpg", draw(64, 48), quality=95, subsampling=2)
save("wide.jpg", draw(37, 23), quality=95, subsampling=1)
save("odd.jpg", draw(37, 23), quality=95, subsampling=2)
save("grey.jpg".replace("grey", "grey_jpeg"), draw(37, 23, "L"), quality=95)
save("lossless.webp", draw(40, 30, "RGBA"), lossless=True, exact=True)
save("lossy.webp", draw(40, 30), quality=95)
save("lossy_alpha.webp", draw(40, 30, "RGBA"), quality=95)
save("still.gif", draw(40, 30).quantize(64))
save("moving.gif", draw(40, 30).quantize(64), save_all=True, append_images=[draw(40, 30).transpose(0).quantize(64)])
save("film.webp", draw(40, 30, "RGBA"), save_all=True, append_images=[draw(40, 30).transpose(0)], lossless=True)
save("lossy_film.webp", draw(40, 30, "RGBA"), save_all=True, append_images=[draw(40, 30).transpose(0)], quality=90)
save("plain.bmp", draw(37, 23))
save("spare.bmp", draw(37, 23, "RGBA"))
save("palette_bmp.bmp", draw(37, 23).quantize(16))

source = draw(61, 43)
source.save(target / "resize_source.ppm")
# Sizes at which Pillow works on columns before rows: version 13 takes rows first in some cases, which rounds
# otherwise.
for width, height in [(28, 28), (122, 129), (61, 20), (17, 43), (7, 5), (1, 1), (400, 60)]:
    source.resize((width, height), Image.Resampling.BICUBIC).save(target / f"resize_{width}x{height}.ppm")

rows = []
generator = random.Random(3)
sizes = [(w, h) for w in (1, 2, 100, 224, 336, 448, 449, 500, 640, 800, 896, 1024, 1344, 1920, 4000)
         for h in (1, 3, 100, 300, 375, 448, 480, 633, 896, 1080, 4000)]
sizes += [(generator.randrange(1, 3000), generator.randrange(1, 3000)) for _ in range(300)]
sizes += [(448 * generator.randrange(1, 7), 448 * generator.randrange(1, 7)) for _ in range(60)]
for width, height in sizes:
    for low, high, size in [(1, 12, 448), (1, 6, 448), (1, 1, 448), (2, 6, 112), (1, 24, 224), (5, 9, 28)]:
        columns, lines = get_optimal_tiled_canvas((height, width), (size, size), low, high)
        rows.append(f"{low},{high},{size},{width},{height},{columns},{lines}")
(target / "tilings.csv").write_text("min,max,tile,width,height,columns,rows\n" + "\n".join(sorted(set(rows))) + "\n")

size, mean, deviation = 14, numpy.array([0.485, 0.456, 0.406], numpy.float32), numpy.array([0.229, 0.224, 0.225], numpy.float32)
columns, lines = get_optimal_tiled_canvas((43, 61), (size, size), 1, 12)
canvas = source.resize((columns * size, lines * size), Image.Resampling.BICUBIC)
tiles = [canvas.crop((c * size, r * size, (c + 1) * size, (r + 1) * size)) for r in range(lines) for c in range(columns)]
tiles.append(source.resize((size, size), Image.Resampling.BICUBIC))
values = numpy.stack([numpy.asarray(tile, dtype=numpy.float32) / numpy.float32(255) for tile in tiles])
values = ((values - mean) / deviation).transpose(0, 3, 1, 2)
save_file({"pixels": numpy.ascontiguousarray(values)}, str(target / "tiles.safetensors"))
print(columns, lines, len(rows))
