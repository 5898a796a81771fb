"""What simulated users have read aloud: everyday sentences in English and Mandarin.

Each sentence has one slot near its start, so that a long run never sends the same text twice: a
repeated text would find its own blocks in the prefix cache and flatter the numbers.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

ENGLISH = (
    "Good morning {name}, the kitchen light has been on since midnight.",
    "When {name} comes back, tell her that the keys are under the blue pot.",
    "The train to {city} leaves from platform nine, not from platform five.",
    "In {city} the rain stopped an hour ago, and the streets are already dry.",
    "Your order of {count} notebooks will arrive before the end of the week.",
    "On {day} we could walk along the river and have lunch near the old bridge.",
    "Would {name} like to join the call, or should I send a summary afterwards?",
    "About {count} people signed up, so we need a bigger room and more chairs.",
    "The museum in {city} closes early today because of a small water leak.",
    "My cousin {name} learned to swim last summer, and now she never leaves the lake.",
    "Every {day} the market opens at seven, and the good bread is gone by eight.",
    "Take {count} steps forward, turn left, and you will see the lift on your right.",
    "If {name} asks, the answer is yes, but only when the homework is finished.",
    "The flight from {city} was delayed twice, and the passengers stayed calm.",
    "I found {count} unread letters in the drawer, all of them without a stamp.",
    "Before {day} ends, please water the tomatoes and close the greenhouse door.",
    "Doctor {name} can see you this afternoon, or early tomorrow if you prefer.",
    "A friend in {city} sent me a recipe for lemon cake with very little sugar.",
    "There are {count} ways to fold this paper, and only one of them makes a bird.",
    "Last {day} the power went out, so we played cards by candle light.",
    "Please tell {name} that the meeting moved to the green room upstairs.",
    "From {city} it takes about two hours by bus, and a little less by car.",
    "After {count} minutes in the oven the crust should be golden and firm.",
    "By {day} the paint will be dry, and we can hang the pictures again.",
    "Did {name} remember the umbrella, or is it still in the hall?",
    "The weather over {city} will be clear tonight, with a light wind from the north.",
    "Roughly {count} birds crossed the valley this morning, heading for the coast.",
    "Next {day} is a holiday, so the library and the post office stay closed.",
    "Could you read the second page for {name}, slowly and a little louder?",
    "Nobody in {city} expected the old clock to start working again.",
    "The box holds {count} screws, a small key, and a sheet of instructions.",
    "Until {day} the shop gives one free coffee with every second cup.",
    "Here is a short story about {name}, who kept a map of every bakery in town.",
    "The road to {city} is open again, although snow is expected after dark.",
    "Set a timer for {count} minutes, then stir the soup and taste it.",
    "This {day} I would rather stay at home, read a book, and sleep early.",
    "Thank you, {name}, that was exactly the answer I was looking for.",
    "A young engineer from {city} built a radio out of spare parts and wire.",
    "The garden needs {count} litres of water a day when the summer is dry.",
    "It was {day} evening, the shops were closing, and the square grew quiet.",
    "Let me check the list again, {name}, because one of the numbers looks wrong.",
    "People who visit {city} in autumn often come back for the colours.",
)

MANDARIN = (
    "{name}你好，昨天的会议记录我已经整理好了。",
    "请告诉{name}，钥匙放在门口的蓝色花盆下面。",
    "去{city}的列车改在九号站台上车，请大家提前准备。",
    "{city}的雨一个小时前就停了，路面已经干了。",
    "你买的{count}本笔记本，周末之前就能送到。",
    "{day}我们可以沿着河边散步，然后在老桥旁边吃午饭。",
    "{name}想参加电话会议吗，还是会后我把总结发给他？",
    "大约有{count}个人报名，我们需要一个更大的房间。",
    "{city}的博物馆今天提前关门，因为有一点漏水。",
    "我的表妹{name}去年夏天学会了游泳，现在天天往湖边跑。",
    "每到{day}，早市七点就开门，好面包八点就卖完了。",
    "往前走{count}步，再向左转，电梯就在你的右手边。",
    "如果{name}问起来，就说可以，不过要先写完作业。",
    "从{city}出发的航班晚点了两次，乘客们都很平静。",
    "抽屉里有{count}封没有拆开的信，上面都没有邮票。",
    "{day}晚上之前，请给西红柿浇水，再把温室的门关好。",
    "{name}医生今天下午有空，明天一早也可以。",
    "一位{city}的朋友寄来了柠檬蛋糕的做法，用糖很少。",
    "这张纸有{count}种折法，只有一种能折出小鸟。",
    "上个{day}停电了，我们点着蜡烛打了一晚上的牌。",
    "麻烦转告{name}，开会的地点改到楼上的绿色房间。",
    "从{city}坐大巴大概要两个小时，开车会快一些。",
    "在烤箱里放{count}分钟，外皮就会变得又黄又脆。",
    "到了{day}油漆就干了，我们可以重新把画挂上去。",
    "{name}带雨伞了吗，还是又忘在走廊里了？",
    "今晚{city}天气晴朗，北风不大，适合出门看星星。",
    "早上大约有{count}只鸟飞过山谷，一直往海边去了。",
    "下个{day}放假，图书馆和邮局都不开门。",
    "请为{name}读一下第二页，慢一点，声音再大一点。",
    "没有人想到，{city}的那座老钟又开始走了。",
    "盒子里有{count}颗螺丝，一把小钥匙，还有一张说明书。",
    "到{day}为止，买两杯咖啡就送一杯。",
    "给你讲一个{name}的故事，他把城里的面包店都画在一张地图上。",
    "通往{city}的公路已经恢复通车，不过天黑以后可能下雪。",
    "请设一个{count}分钟的闹钟，然后搅一搅汤，尝尝味道。",
    "这个{day}我更想待在家里，看看书，早点睡觉。",
    "谢谢你，{name}，这正是我想要的答案。",
    "一个来自{city}的年轻工程师，用旧零件做了一台收音机。",
    "夏天干旱的时候，院子每天要用{count}升水。",
    "那是一个{day}的傍晚，店铺陆续关门，广场安静了下来。",
    "{name}，我再核对一遍名单，有一个数字好像不对。",
    "秋天去过{city}的人，常常因为那里的颜色再去一次。",
)

_COUNTS = tuple(str(number) for number in range(12, 99))

_SLOTS: dict[str, dict[str, tuple[str, ...]]] = {
    "en": {
        "count": _COUNTS,
        "name": (
            "Anna", "Ben", "Clara", "Daniel", "Emma", "Frank", "Grace", "Henry", "Iris",
            "Jack", "Karen", "Leo", "Maria", "Nora", "Oscar", "Paul", "Rose", "Sam",
        ),
        "city": (
            "Lisbon", "Oslo", "Boston", "Vienna", "Dublin", "Madrid", "Denver", "Prague",
            "Milan", "Geneva", "Chicago", "Berlin", "London", "Toronto", "Sydney", "Rome",
        ),
        "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    },
    "zh": {
        "count": _COUNTS,
        "name": (
            "小明", "李华", "王芳", "张伟", "陈静", "刘洋", "赵敏", "孙丽", "周杰",
            "吴刚", "郑爽", "林涛", "黄磊", "何平", "高远", "罗兰",
        ),
        "city": (
            "北京", "上海", "成都", "西安", "杭州", "南京", "武汉", "青岛",
            "昆明", "厦门", "长沙", "大连", "苏州", "天津", "广州", "桂林",
        ),
        "day": ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期天"),
    },
}  # fmt: skip

_TOKEN = re.compile(r"\s*[A-Za-z0-9']{1,6}|\s*[一-鿿]{1,2}|\s*[^\sA-Za-z0-9]")


def sentences(tongue: str, rng: random.Random) -> Iterator[str]:
    """Sentences without end: every template comes once a round, each round with other words.

    `tongue` is `en`, `zh` or `both`. Nothing repeats for seven rounds of 42 or 84 sentences.
    """
    pool: list[tuple[str, str, list[str]]] = []
    for language, templates in (("en", ENGLISH), ("zh", MANDARIN)):
        if tongue in ("both", language):
            for template in templates:
                slot = template[template.index("{") + 1 : template.index("}")]
                words = list(_SLOTS[language][slot])
                rng.shuffle(words)
                pool.append((template, slot, words))
    for turn in itertools.count():
        rng.shuffle(pool)
        for template, slot, words in pool:
            yield template.replace("{" + slot + "}", words[turn % len(words)])


def tokens(text: str) -> list[str]:
    """The text in pieces of a language model's usual size; joined they are the text again."""
    parts = _TOKEN.findall(text)
    if "".join(parts) != text:
        parts.append(text[len("".join(parts)) :])
    return parts
